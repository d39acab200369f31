#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace outpost::vm {
/// "; did you mean 'main' or 'mean'?" with the names closest to `name`, or what there is when none
/// is close ("; there are 'a', 'b' and 3 more").
std::string did_you_mean(std::string_view name, const std::vector<std::string_view>& names);
}  // namespace outpost::vm
