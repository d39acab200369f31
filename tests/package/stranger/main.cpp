// Nobody listens on the port: the installed library must say so by its own exception.
#include <outpost/rpc/client.h>

#include <cstdio>

int main() {
  try {
    outpost::client::connect("127.0.0.1", 1, {});
  } catch (const outpost::client::RpcError& e) {
    std::printf("refused as it should be: %s\n", e.what());
    return 0;
  }
  return 1;
}
