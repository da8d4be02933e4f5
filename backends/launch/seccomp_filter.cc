#include "seccomp_filter.h"

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "seccomp_calls.h"

namespace moorage::launch {
namespace {

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "name this architecture's AUDIT_ARCH_ constant"
#endif

constexpr uint32_t kNoSuchCall = SECCOMP_RET_ERRNO | ENOSYS;
constexpr uint32_t kNotPermitted = SECCOMP_RET_ERRNO | EPERM;
constexpr uint32_t kUnknown = SECCOMP_RET_ERRNO | EINVAL;
constexpr uint32_t kNoMemory = SECCOMP_RET_ERRNO | ENOMEM;

using Program = std::vector<sock_filter>;

void load(Program& program, size_t offset) {
  program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)));
}

void answer(Program& program, uint32_t action) {
  program.push_back(BPF_STMT(BPF_RET | BPF_K, action));
}

void answer_if_equal(Program& program, uint32_t value, uint32_t action) {
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1));
  answer(program, action);
}

// Numbers of the calls that exist on this architecture, sorted.
std::vector<uint32_t> numbers(const char* names) {
  std::vector<uint32_t> found;
  std::istringstream words(names);
  for (std::string word; words >> word;) {
    const int number = seccomp_syscall_resolve_name(word.c_str());
    if (number >= 0) found.push_back(static_cast<uint32_t>(number));
  }
  std::sort(found.begin(), found.end());
  return found;
}

// One test per run of adjacent numbers. Since 5.11 the kernel caches which calls are allowed for
// any arguments, so only the first call pays for this walk.
void answer_ranges(Program& program, const std::vector<uint32_t>& sorted, uint32_t action) {
  for (size_t first = 0; first < sorted.size();) {
    size_t last = first;
    while (last + 1 < sorted.size() && sorted[last + 1] == sorted[last] + 1) ++last;
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, sorted[first], 0, 2));
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, sorted[last], 1, 0));
    answer(program, action);
    first = last + 1;
  }
}

// The kernel reads these arguments as 32 bits; one high bit would bypass a 64-bit comparison.
size_t low_half(int argument) {
  size_t offset = offsetof(seccomp_data, args) + static_cast<size_t>(argument) * sizeof(uint64_t);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  offset += sizeof(uint32_t);
#endif
  return offset;
}

// Returns `listed` for these values of the argument of `call`, else `other`.
void answer_by_argument(Program& program, uint32_t call, int argument,
                        const std::vector<uint32_t>& values, uint32_t listed, uint32_t other) {
  const auto length = static_cast<uint8_t>(2 + 2 * values.size());
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, length));
  load(program, low_half(argument));
  for (uint32_t value : values) answer_if_equal(program, value, listed);
  answer(program, other);
}

// Allows `call` unless the argument has the flag.
void allow_without_flag(Program& program, const RefusedFlag& refused) {
  const auto call = static_cast<uint32_t>(seccomp_syscall_resolve_name(refused.call));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4));
  load(program, low_half(refused.argument));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, refused.flag, 0, 1));
  answer(program, kNoMemory);
  answer(program, SECCOMP_RET_ALLOW);
}

// Refuses these socket-level options.
void allow_other_options(Program& program, const std::vector<uint32_t>& refused) {
  const auto length = static_cast<uint8_t>(5 + 2 * refused.size());
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_setsockopt, 0, length));
  load(program, low_half(1));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kSocketLevel, 1, 0));
  answer(program, SECCOMP_RET_ALLOW);
  load(program, low_half(2));
  for (uint32_t option : refused) answer_if_equal(program, option, kNotPermitted);
  answer(program, SECCOMP_RET_ALLOW);
}

template <size_t N>
std::vector<uint32_t> listed(const uint32_t (&values)[N]) {
  return {std::begin(values), std::end(values)};
}

Program allowlist() {
  Program program;
  load(program, offsetof(seccomp_data, arch));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0));
  answer(program, kNoSuchCall);
  load(program, offsetof(seccomp_data, nr));

  // First: mmap is frequent, and the kernel cannot cache a decision that depends on arguments.
  for (const RefusedFlag& refused : kHugePages) allow_without_flag(program, refused);
  std::string allowed = std::string(kSetUp) + " " + kNamespaces;
  for (const char* group : kAllowed) allowed += std::string(" ") + group;
  // The late policy checks the flags: LXC makes namespaces.
  allowed += " clone clone3";
  answer_ranges(program, numbers(allowed.c_str()), SECCOMP_RET_ALLOW);
  // To LXC, a kernel without these namespaces: it would leave the one that we give it
  // (cgroup_namespace.h) for one of its own, whatever its settings say.
  answer_by_argument(program, SYS_unshare, 0, {CLONE_NEWCGROUP}, kUnknown, SECCOMP_RET_ALLOW);
  answer_by_argument(program, SYS_ioctl, 1, listed(kRefusedIoctls), kNotPermitted,
                     SECCOMP_RET_ALLOW);
  answer_by_argument(program, SYS_socket, 0, listed(kRefusedFamilies), kNotPermitted,
                     SECCOMP_RET_ALLOW);
  allow_other_options(program, listed(kRefusedSocketOptions));
  answer_by_argument(program, SYS_personality, 0, listed(kPersonalities), SECCOMP_RET_ALLOW,
                     kNotPermitted);
  answer_ranges(program, numbers(kRefused), kNotPermitted);
  answer(program, kNoSuchCall);
  return program;
}

// Refuses a call with any of these flags in its first argument.
void refuse_flags(Program& program, uint32_t call, uint32_t flags) {
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4));
  load(program, low_half(0));
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, flags, 0, 1));
  answer(program, kNotPermitted);
  answer(program, SECCOMP_RET_ALLOW);
}

Program late_denylist() {
  Program program;
  load(program, offsetof(seccomp_data, nr));
  answer_ranges(program, numbers((std::string(kSetUp) + " " + kNamespaces).c_str()), kNotPermitted);
  // glibc falls back to clone, whose flags a filter can read; clone3's are in memory.
  answer_if_equal(program, SYS_clone3, kNoSuchCall);
  refuse_flags(program, SYS_clone, kNamespaceFlags);
  refuse_flags(program, SYS_unshare, kNamespaceFlags | kNewTime);
  answer(program, SECCOMP_RET_ALLOW);
  return program;
}

void install(Program program) {
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  base::check(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter), "set up seccomp");
}

void refuse_flag(const char* call, uint32_t flag, std::string& policy) {
  const std::string bits = std::to_string(flag);
  policy += std::string(call) + " errno 1 [0," + bits + ",SCMP_CMP_MASKED_EQ," + bits + "]\n";
}

}  // namespace

// LXC: without no_new_privs (sudo must work inside); that needs CAP_SYS_ADMIN: we are host root.
void install_allowlist() { install(allowlist()); }

void install_late_denylist() { install(late_denylist()); }

std::string late_policy(bool nested_namespaces) {
  std::string policy = "2\ndenylist\n[all]\n";
  std::istringstream words(nested_namespaces ? kSetUp : std::string(kSetUp) + " " + kNamespaces);
  for (std::string word; words >> word;) policy += word + " errno 1\n";
  // glibc falls back to clone, whose flags a filter can read; clone3's are in memory.
  policy += "clone3 errno 38\n";
  if (nested_namespaces) return policy;
  for (uint32_t flag = 1; flag != 0 && flag <= kNamespaceFlags; flag <<= 1) {
    if (flag & kNamespaceFlags) refuse_flag("clone", flag, policy);
    if (flag & (kNamespaceFlags | kNewTime)) refuse_flag("unshare", flag, policy);
  }
  return policy;
}

}  // namespace moorage::launch
