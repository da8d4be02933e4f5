#include "backends/engine/engine_seccomp.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <sstream>
#include <vector>

#include "backends/launch/seccomp_calls.h"

namespace moorage::backends {
namespace {

namespace json = boost::json;

constexpr const char* kAllow = "SCMP_ACT_ALLOW";
constexpr const char* kRefuse = "SCMP_ACT_ERRNO";

json::array words(const std::string& list) {
  json::array names;
  std::istringstream stream(list);
  for (std::string word; stream >> word;) names.emplace_back(word);
  return names;
}

json::object rule(const std::string& calls, const char* action, int error_number = EPERM) {
  json::object rule{{"names", words(calls)}, {"action", action}};
  if (action == kRefuse) rule["errnoRet"] = error_number;
  return rule;
}

// Checks only the low half of the argument: the kernel reads these as 32 bits, and one high bit
// would bypass a 64-bit comparison.
json::object where(json::object rule, int argument, uint32_t mask, uint32_t value) {
  auto& all = rule["args"];
  if (!all.is_array()) all = json::array{};
  all.as_array().push_back(json::object{
      {"index", argument}, {"value", mask}, {"valueTwo", value}, {"op", "SCMP_CMP_MASKED_EQ"}});
  return rule;
}

// Allows `call` for every value except these. The rules of a call are alternatives, and none can
// exclude several values: so one rule per group of values that share leading bits and contain none
// of the refused ones.
void allow_all_but(json::array& rules, const char* call, int argument,
                   const std::vector<uint32_t>& values, int bit = 31, uint32_t prefix = 0,
                   uint32_t mask = 0) {
  if (values.empty()) {
    rules.push_back(where(rule(call, kAllow), argument, mask, prefix));
    return;
  }
  if (bit < 0) return;
  const uint32_t here = uint32_t{1} << bit;
  for (const uint32_t wanted : {uint32_t{0}, here}) {
    std::vector<uint32_t> among;
    std::copy_if(values.begin(), values.end(), std::back_inserter(among),
                 [&](uint32_t value) { return (value & here) == wanted; });
    allow_all_but(rules, call, argument, among, bit - 1, prefix | wanted, mask | here);
  }
}

template <size_t N>
void allow_but_refuse(json::array& rules, const char* call, int argument,
                      const uint32_t (&refused)[N]) {
  allow_all_but(rules, call, argument, {std::begin(refused), std::end(refused)});
  for (const uint32_t value : refused) {
    rules.push_back(where(rule(call, kRefuse), argument, UINT32_MAX, value));
  }
}

void refuse_socket_options(json::array& rules) {
  allow_all_but(rules, "setsockopt", 1, {launch::kSocketLevel});
  json::array of_level;
  allow_but_refuse(of_level, "setsockopt", 2, launch::kRefusedSocketOptions);
  for (auto& one : of_level)
    rules.push_back(where(std::move(one.as_object()), 1, UINT32_MAX, launch::kSocketLevel));
}

// Refuses the call if any of these flags is set, otherwise allows it.
void allow_without_flags(json::array& rules, const char* call, uint32_t flags, int argument = 0,
                         int error_number = EPERM) {
  rules.push_back(where(rule(call, kAllow), argument, flags, 0));
  for (uint32_t flag = 1; flag != 0 && flag <= flags; flag <<= 1) {
    if (flags & flag)
      rules.push_back(where(rule(call, kRefuse, error_number), argument, flag, flag));
  }
}

#if defined(__x86_64__)
constexpr const char* kArchitecture = "SCMP_ARCH_X86_64";
#elif defined(__aarch64__)
constexpr const char* kArchitecture = "SCMP_ARCH_AARCH64";
#else
#error "name this architecture's SCMP_ARCH_ constant"
#endif

}  // namespace

std::string engine_seccomp_profile(bool nested_namespaces) {
  json::array rules;
  for (const char* group : launch::kAllowed) rules.push_back(rule(group, kAllow));
  rules.push_back(rule(launch::kRefused, kRefuse));
  rules.push_back(rule(launch::kSetUp, kRefuse));
  if (nested_namespaces) {
    rules.push_back(rule(launch::kNamespaces, kAllow));
    rules.push_back(rule("clone unshare", kAllow));
  } else {
    rules.push_back(rule(launch::kNamespaces, kRefuse));
    allow_without_flags(rules, "clone", launch::kNamespaceFlags);
    allow_without_flags(rules, "unshare", launch::kNamespaceFlags | launch::kNewTime);
  }
  // glibc falls back to clone, whose flags a filter can read; clone3's are in memory. Docker 20.10
  // ignores "defaultErrnoRet" and returns EPERM for unnamed calls. runc returns ENOSYS for calls
  // newer than all named ones, if the architecture is given.
  for (const char* calls : {"clone3", launch::kCountedByHost, launch::kUnknown})
    rules.push_back(rule(calls, kRefuse, ENOSYS));
  for (const auto& [call, argument, flag] : launch::kHugePages)
    allow_without_flags(rules, call, flag, argument, ENOMEM);
  allow_but_refuse(rules, "ioctl", 1, launch::kRefusedIoctls);
  allow_but_refuse(rules, "socket", 0, launch::kRefusedFamilies);
  refuse_socket_options(rules);
  for (const uint32_t value : launch::kPersonalities) {
    rules.push_back(where(rule("personality", kAllow), 0, UINT32_MAX, value));
  }
  return json::serialize(json::object{{"defaultAction", kRefuse},
                                      {"architectures", json::array{kArchitecture}},
                                      {"syscalls", std::move(rules)}});
}

}  // namespace moorage::backends
