#include "probe_table.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <sstream>

namespace moorage::tests {
namespace {

bool matches(const std::string& pattern, const std::string& line) {
  if (!pattern.ends_with('*')) return pattern == line;
  return line.starts_with(pattern.substr(0, pattern.size() - 1));
}

std::string told(const Findings& findings, const std::string& line) {
  const auto found = findings.find(line);
  return found == findings.end() ? "not there" : found->second;
}

}  // namespace

Findings probe(SandboxFixture& sandboxes, const std::string& user) {
  Command command;
  command.argv = {sandboxes.program(1, PROBE_PROGRAM)};
  command.user = user;
  const auto outcome = sandboxes.run(1, command);
  INFO(outcome.output << outcome.text);
  REQUIRE(outcome.code == 0);
  Findings found;
  std::istringstream lines(outcome.output);
  for (std::string line; std::getline(lines, line);) {
    const size_t space = line.find(' ');
    std::string& value = found[line.substr(0, space)];
    value += (value.empty() ? "" : "; ") + line.substr(space + 1);  // several mounts on one path
  }
  return found;
}

Comparison compare(const std::string& backend, const Findings& on_lxc, const Findings& here,
                   const std::vector<Allowed>& allowed) {
  std::set<std::string> lines;
  for (const Findings* findings : {&on_lxc, &here}) {
    for (const auto& [line, value] : *findings) lines.insert(line);
  }
  Comparison result;
  for (const std::string& line : lines) {
    const std::string there = told(on_lxc, line);
    const std::string value = told(here, line);
    if (there == value) {
      ++result.same;
      continue;
    }
    const auto reason = std::find_if(allowed.begin(), allowed.end(), [&](const Allowed& each) {
      return each.backend == backend && matches(each.line, line);
    });
    if (reason == allowed.end()) {
      result.not_allowed.push_back(line + ": on lxc " + there + ", here " + value);
      continue;
    }
    if (reason->of_some_kernels) continue;
    result.allowed.push_back({reason->line, line, there, value, reason->reason});
  }
  return result;
}

}  // namespace moorage::tests
