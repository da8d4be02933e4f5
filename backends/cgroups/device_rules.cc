#include "backends/cgroups/device_rules.h"

#include <fcntl.h>
#include <linux/bpf.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/os/files.h"

namespace moorage::backends {
namespace {

struct Device {
  int32_t major;
  int32_t minor;
};

constexpr int32_t kMemory = 1;
constexpr int32_t kTerminals = 5;
constexpr Device kAllowed[] = {
    {kMemory, 3},     // null
    {kMemory, 5},     // zero
    {kMemory, 7},     // full
    {kMemory, 8},     // random
    {kMemory, 9},     // urandom
    {kTerminals, 0},  // tty
    {kTerminals, 2},  // ptmx
};
constexpr int32_t kPseudoTerminals = 136;  // 8 majors from here on

enum Register : uint8_t {
  kAnswer = 0,
  kContext = 1,
  kType = 2,
  kAccess = 3,
  kMajor = 4,
  kMinor = 5
};

bpf_insn instruction(int code, int to, int from, int offset, int32_t value) {
  bpf_insn result{};
  result.code = static_cast<uint8_t>(code);
  result.dst_reg = static_cast<uint8_t>(to) & 0xF;
  result.src_reg = static_cast<uint8_t>(from) & 0xF;
  result.off = static_cast<int16_t>(offset);
  result.imm = value;
  return result;
}

bpf_insn load(Register to, size_t offset) {
  return instruction(BPF_LDX | BPF_MEM | BPF_W, to, kContext, static_cast<int>(offset), 0);
}

bpf_insn skip_unless_equal(Register what, int32_t value, int count) {
  return instruction(BPF_JMP | BPF_JNE | BPF_K, what, 0, count, value);
}

void answer(std::vector<bpf_insn>& program, int32_t value) {
  program.push_back(instruction(BPF_ALU64 | BPF_MOV | BPF_K, kAnswer, 0, 0, value));
  program.push_back(instruction(BPF_JMP | BPF_EXIT, 0, 0, 0, 0));
}

std::vector<bpf_insn> rules() {
  constexpr int kAnswerLength = 2;
  std::vector<bpf_insn> program{
      // access_type is (BPF_DEVCG_ACC_* << 16) | BPF_DEVCG_DEV_*
      load(kType, offsetof(bpf_cgroup_dev_ctx, access_type)),
      instruction(BPF_ALU64 | BPF_MOV | BPF_X, kAccess, kType, 0, 0),
      instruction(BPF_ALU64 | BPF_AND | BPF_K, kType, 0, 0, 0xFFFF),
      instruction(BPF_ALU64 | BPF_RSH | BPF_K, kAccess, 0, 0, 16),
      instruction(BPF_ALU64 | BPF_AND | BPF_K, kAccess, 0, 0, BPF_DEVCG_ACC_MKNOD),
      load(kMajor, offsetof(bpf_cgroup_dev_ctx, major)),
      load(kMinor, offsetof(bpf_cgroup_dev_ctx, minor)),
      skip_unless_equal(kAccess, BPF_DEVCG_ACC_MKNOD, kAnswerLength),
  };
  answer(program, 0);
  program.push_back(
      instruction(BPF_JMP | BPF_JEQ | BPF_K, kType, 0, kAnswerLength, BPF_DEVCG_DEV_CHAR));
  answer(program, 0);
  for (const Device& device : kAllowed) {
    program.push_back(skip_unless_equal(kMajor, device.major, 1 + kAnswerLength));
    program.push_back(skip_unless_equal(kMinor, device.minor, kAnswerLength));
    answer(program, 1);
  }
  program.push_back(instruction(BPF_ALU64 | BPF_AND | BPF_K, kMajor, 0, 0, ~7));
  program.push_back(skip_unless_equal(kMajor, kPseudoTerminals, kAnswerLength));
  answer(program, 1);
  answer(program, 0);
  return program;
}

int bpf(bpf_cmd command, bpf_attr& attributes) {
  return static_cast<int>(syscall(SYS_bpf, command, &attributes, sizeof attributes));
}

}  // namespace

DeviceRules::DeviceRules() {
  const std::vector<bpf_insn> program = rules();
  bpf_attr attributes;
  std::memset(&attributes, 0, sizeof attributes);
  attributes.prog_type = BPF_PROG_TYPE_CGROUP_DEVICE;
  attributes.expected_attach_type = BPF_CGROUP_DEVICE;
  attributes.insns = reinterpret_cast<uint64_t>(program.data());
  attributes.insn_cnt = static_cast<uint32_t>(program.size());
  attributes.license = reinterpret_cast<uint64_t>("");
  program_ = Fd(bpf(BPF_PROG_LOAD, attributes));
  if (program_) return;
  throw Error(Code::unsupported,
              std::string("the kernel does not accept device rules: ") + std::strerror(errno),
              "use a kernel with CONFIG_CGROUP_BPF; in a container, one with CAP_SYS_ADMIN");
}

void DeviceRules::apply(const std::string& unified_group) const {
  const Fd group = base::open_file(unified_group, O_RDONLY | O_DIRECTORY);
  bpf_attr attributes;
  std::memset(&attributes, 0, sizeof attributes);
  attributes.target_fd = static_cast<uint32_t>(group.get());
  attributes.attach_bpf_fd = static_cast<uint32_t>(program_.get());
  attributes.attach_type = BPF_CGROUP_DEVICE;
  // A service manager's own rules on parent groups also apply.
  attributes.attach_flags = BPF_F_ALLOW_MULTI;
  base::check(bpf(BPF_PROG_ATTACH, attributes), "attach device rules to " + unified_group);
}

}  // namespace moorage::backends
