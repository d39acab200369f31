#!/usr/bin/env python3
"""The house rules as a test: dependency direction, sizes, banned calls. Prints each breach as path:line: text.

  tests/tidy.py [root]      exit code 1 when a rule is broken
"""

import pathlib
import re
import sys

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
CPP_COLUMNS_MAX = 100
SCRIPT_COLUMNS_MAX = 120

CODE_FOLDERS = ("librpc", "libvm", "tracker", "apps", "tests")
# The black-box benchmarks stand alone, outside of the build, and stay as they were when the README's table was made.
SKIPPED = re.compile(r"^(build|\.git|tests/data|tests/fuzz/corpus|tests/bench)(/|$)|__pycache__|\.pytest_cache")

# Who may include whom; "vm" is all of libvm, a part of it has its own row where it is stricter.
ALLOWED = {
    "base": {"base"},
    "wire": {"wire", "base"},
    "core": {"core", "wire", "base"},
    "net": {"net", "core", "wire", "base"},
    "dial": {"dial", "wire", "base"},
    "host": {"host", "dial", "core", "wire", "base", "vm", "vm/format", "vm/verify"},
    "server": {"server", "host", "net", "core", "wire", "base"},
    "sandbox": {"sandbox", "base"},
    "public": {"public"},
    "client": {"client", "dial", "public", "net", "core", "wire", "base", "host", "vm"},
    "vm": {"vm", "vm/format", "vm/verify", "base"},
    "vm/format": {"vm/format", "base"},
    "vm/verify": {"vm/verify", "vm/format", "base"},
    "tracker": {"tracker", "wire", "base"},
    "tracker/io": {"tracker/io", "tracker", "net", "core", "wire", "base"},
}
TRACKER_PURE = ("broker", "constraint", "line", "order", "request_key", "tracker_core", "summary")

# Parts that take bytes and time from outside and give actions back: no sockets, logs, clocks or files inside.
PURE = {"base", "wire", "core", "vm/format", "vm/verify", "tracker"}
PURE_HEADERS = re.compile(
    r"^(boost/asio|boost/beast|spdlog/|CLI/|fstream$|filesystem$|iostream$|thread$|mutex$|unistd\.h$|fcntl\.h$|"
    r"sys/(?!types))")
PURE_CALLS = re.compile(r"\b(?:steady|system|high_resolution)_clock::now\b|\bclock_gettime\b|\bfopen\s*\(")
# The owner of a descriptor must close it, and the shared page is memory; both are the base of what does I/O.
PURE_EXCEPTIONS = {"librpc/base/unique_fd.h", "librpc/base/session_page.h", "librpc/base/assert.cpp"}

BANNED = [
    (re.compile(r"\b(?:v?sprintf|strcpy|strcat|strtok|gets|atoi|atol|atof|tmpnam|mktemp)\s*\("), "unsafe call"),
    (re.compile(r"(?:\bstd::|(?<![\w>])::)system\s*\(|\bpopen\s*\("), "no shell: use the process runner"),
    (re.compile(r"\bstd::endl\b"), "std::endl flushes: write '\\n'"),
    (re.compile(r"\busing namespace std;"), "using namespace std"),
    (re.compile(r"(?<![\w.>:])s?rand\s*\("), "rand(): use a seeded engine of <random>"),
]
SLEEP = re.compile(r"\b(?:sleep_for|sleep_until|usleep|nanosleep)\s*\(|(?:::|^\s*)sleep\s*\(")
SCRIPT_SLEEP = re.compile(r"\btime\.sleep\s*\(")
# The probe's job is to sleep; `until` polls what no event announces, with a limit.
SLEEP_ALLOWED = {"tests/support/probe.c", "tests/interop/peers.py"}
CLASS = re.compile(r"(?:struct|class|enum|union)\b")
NO_FUNCTION = re.compile(r"(?:inline )?(?:namespace|extern|struct|class|enum|union)\b")
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


class Tidy:
    def __init__(self, root):
        self.root, self.breaches = root, []

    def say(self, path, line, text):
        self.breaches.append(f"{path.relative_to(self.root)}:{line}: {text}")

    def files(self, *suffixes):
        for path in sorted(self.root.rglob("*")):
            name = path.relative_to(self.root).as_posix()
            if not SKIPPED.search(name) and path.is_file() and path.suffix in suffixes:
                yield path

    def part(self, path):
        """The part of the program a file belongs to, as a key of ALLOWED; None for apps and tests."""
        parts = path.relative_to(self.root).parts
        if parts[0] == "librpc":
            return "public" if parts[1] == "include" else parts[1] if len(parts) > 2 else None
        if parts[0] == "libvm":
            if path.name == "executable.h":
                return "vm/format"  # the public face of format and verify
            return f"vm/{parts[1]}" if parts[1] in ("format", "verify") else "vm"
        if parts[0] == "tracker":
            return "tracker" if path.stem.startswith(TRACKER_PURE) else "tracker/io"
        return None

    def resolve(self, path, name):
        roots = ["librpc", "libvm", "tracker", "apps", "tests", "librpc/include", "libvm/include", "."]
        for folder in [path.parent, *(self.root / r for r in roots)]:
            if (folder / name).is_file():
                return (folder / name).resolve()
        return None

    def check_includes(self, path, lines):
        part = self.part(path)
        name = path.relative_to(self.root).as_posix()
        top = name.split("/")[0]
        own = path.with_suffix(".h")
        first = None
        for number, line in enumerate(lines, 1):
            found = INCLUDE.match(line)
            if not found:
                continue
            quoted, angled = found.groups()
            target = self.resolve(path, quoted) if quoted else None
            first = first or (number, target)
            if part in PURE and name not in PURE_EXCEPTIONS and PURE_HEADERS.search(quoted or angled):
                self.say(path, number, f"part '{part}' is free of I/O and may not include {quoted or angled}")
            if target is None:
                if quoted:
                    self.say(path, number, f"'{quoted}' is not found below the include folders")
                continue
            target_top = target.relative_to(self.root).parts[0]
            if target_top == "apps" and top not in ("apps", "tests"):
                self.say(path, number, f"nothing depends on apps, but this includes '{quoted}'")
            if target_top == "tests" and top != "tests":
                self.say(path, number, f"product code includes '{quoted}' of the tests")
            to = self.part(target)
            if part is None or to is None:
                continue
            if part not in ALLOWED:
                self.say(path, number, f"part '{part}' has no row in tests/tidy.py")
            elif to not in ALLOWED[part]:
                self.say(path, number, f"part '{part}' may not depend on '{to}' ('{quoted}')")
        if path.suffix == ".cpp" and own.is_file() and first and first[1] != own.resolve():
            self.say(path, first[0], f"the first include is not the file's own header '{own.name}'")

    def check_code(self, path, lines):
        name = path.relative_to(self.root).as_posix()
        part = self.part(path)
        if path.suffix == ".h" and not any(line.strip() == "#pragma once" for line in lines):
            self.say(path, 1, "no #pragma once")
        for number, line in enumerate(lines, 1):
            if len(line) > CPP_COLUMNS_MAX:
                self.say(path, number, f"{len(line)} columns, at most {CPP_COLUMNS_MAX}")
            code = re.sub(r'"(?:\\.|[^"\\])*"', '""', line.split("//")[0])
            for pattern, text in BANNED:
                if pattern.search(code):
                    self.say(path, number, f"banned: {text}")
            if part in PURE and name not in PURE_EXCEPTIONS and PURE_CALLS.search(code):
                self.say(path, number, f"part '{part}' may not read a clock or open a file")
            if name.startswith("tests/") and name not in SLEEP_ALLOWED and SLEEP.search(code):
                self.say(path, number, "tests wait for events, they do not sleep")
        self.check_functions(path, lines)

    def check_functions(self, path, lines):
        """Length of functions at column 0: namespaces are not indented, so each closes with a brace there."""
        start, in_class = None, False
        for number, line in enumerate(lines, 1):
            if in_class:
                in_class = not line.startswith("}")
            elif start is None:
                if CLASS.match(line):
                    in_class = line.endswith("{")
                elif line.endswith("{") and not NO_FUNCTION.match(line):
                    start = number
            elif line.startswith("}"):
                if number - start + 1 > FUNCTION_LINES_MAX and "(" in lines[start - 1]:
                    self.say(path, start, f"function of {number - start + 1} lines, at most {FUNCTION_LINES_MAX}")
                start = None

    def check_script(self, path, lines):
        name = path.relative_to(self.root).as_posix()
        for number, line in enumerate(lines, 1):
            if len(line) > SCRIPT_COLUMNS_MAX:
                self.say(path, number, f"{len(line)} columns, at most {SCRIPT_COLUMNS_MAX}")
            allowed = name in SLEEP_ALLOWED or name == "tests/tidy.py"
            if name.startswith("tests/") and not allowed and SCRIPT_SLEEP.search(line):
                self.say(path, number, "tests wait for events, they do not sleep")

    def check_text(self, path, lines):
        if len(lines) > FILE_LINES_MAX:
            self.say(path, len(lines), f"{len(lines)} lines, split at {FILE_LINES_MAX}")
        for number, line in enumerate(lines, 1):
            if line != line.rstrip():
                self.say(path, number, "blanks at the end of the line")
            if str(self.root) in line:
                self.say(path, number, "names the folder of this checkout")

    def run(self):
        licence = self.root / "LICENSE"
        if not licence.is_file() or "Apache License" not in licence.read_text():
            self.breaches.append("LICENSE: the Apache licence is not there")
        for path in self.files(".h", ".cpp", ".c", ".py", ".cmake", ".txt", ".md"):
            lines = path.read_text(errors="replace").split("\n")[:-1]
            if path.suffix != ".md":
                self.check_text(path, lines)
            if path.suffix in (".h", ".cpp", ".c") and path.relative_to(self.root).parts[0] in CODE_FOLDERS:
                self.check_includes(path, lines)
                self.check_code(path, lines)
            elif path.suffix == ".py":
                self.check_script(path, lines)
        return self.breaches


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    breaches = Tidy(root if root.is_dir() else root.parents[1]).run()
    for breach in breaches:
        print(breach)
    print(f"tidy: {len(breaches)} breaches" if breaches else "tidy: all rules kept")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main())
