#include "base/os/processors.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <map>
#include <sstream>

#include "base/error.h"

namespace moorage::base {
namespace {

constexpr int kMost = 8192;  // the kernel's largest NR_CPUS
constexpr int kBits = 8 * sizeof(unsigned long);
using Mask = std::array<unsigned long, kMost / kBits>;

}  // namespace

// The bare calls: the C library's set has room for 1,024 processors.
Processors processors_of(pid_t pid) {
  Mask mask{};
  if (syscall(SYS_sched_getaffinity, pid, sizeof mask, mask.data()) < 0) {
    if (errno == ESRCH) return {};
    throw_errno("find the processors of process " + std::to_string(pid));
  }
  Processors processors;
  for (int number = 0; number < kMost; ++number) {
    if ((mask[static_cast<size_t>(number / kBits)] >> (number % kBits)) & 1)
      processors.push_back(number);
  }
  return processors;
}

void keep_to_processors(pid_t pid, const Processors& processors) {
  Mask mask{};
  for (int number : processors) {
    if (number >= 0 && number < kMost)
      mask[static_cast<size_t>(number / kBits)] |= 1UL << (number % kBits);
  }
  // EINVAL: they went offline since they were chosen.
  if (syscall(SYS_sched_setaffinity, pid, sizeof mask, mask.data()) == 0 || errno == ESRCH ||
      errno == EINVAL)
    return;
  throw_errno("keep process " + std::to_string(pid) + " to its processors");
}

Processors choose_processors(const Processors& allowed, double cpus,
                             const std::vector<Processors>& used) {
  if (!(cpus > 0) || std::ceil(cpus) >= static_cast<double>(allowed.size())) return {};
  std::map<int, size_t> users;
  for (const Processors& each : used) {
    for (int number : each) ++users[number];
  }
  Processors chosen = allowed;
  std::stable_sort(chosen.begin(), chosen.end(),
                   [&](int one, int other) { return users[one] < users[other]; });
  chosen.resize(static_cast<size_t>(std::ceil(cpus)));
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

std::string processors_text(const Processors& processors) {
  std::string text;
  for (size_t first = 0; first < processors.size();) {
    size_t last = first;
    while (last + 1 < processors.size() && processors[last + 1] == processors[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(processors[first]);
    if (last > first) text += "-" + std::to_string(processors[last]);
    first = last + 1;
  }
  return text;
}

Processors parse_processors(const std::string& text) {
  Processors processors;
  std::istringstream ranges(text);
  for (std::string range; std::getline(ranges, range, ',');) {
    std::istringstream numbers(range);
    int first = 0;
    int last = 0;
    char dash = 0;
    if (!(numbers >> first)) continue;
    if (!(numbers >> dash >> last) || dash != '-') last = first;
    for (int number = first; number <= last && number < kMost; ++number)
      processors.push_back(number);
  }
  return processors;
}

}  // namespace moorage::base
