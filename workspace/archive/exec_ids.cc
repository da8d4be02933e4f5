#include "workspace/archive/exec_ids.h"

#include <cstring>

#include "base/error.h"

namespace moorage::workspace {
namespace {

constexpr size_t kFlushBytes = 64 << 10;

struct Pair {
  int64_t old = 0;
  int64_t now = 0;
};

}  // namespace

void ExecIds::add(base::ExecId old, base::ExecId now) {
  const Pair pair{old.value, now.value};
  added_.append(reinterpret_cast<const char*>(&pair), sizeof pair);
  if (added_.size() >= kFlushBytes) flush();
}

void ExecIds::flush() {
  if (added_.empty()) return;
  base::write_at(file_.get(), added_, count_ * sizeof(Pair));
  count_ += added_.size() / sizeof(Pair);
  added_.clear();
}

std::optional<base::ExecId> ExecIds::find(base::ExecId old) {
  flush();
  uint64_t begin = 0;
  for (uint64_t end = count_; begin < end;) {
    const uint64_t middle = begin + (end - begin) / 2;
    const std::string bytes = base::read_at(file_.get(), sizeof(Pair), middle * sizeof(Pair));
    if (bytes.size() != sizeof(Pair))
      throw base::Error(base::Code::io, "the temporary list of command ids is truncated");
    Pair pair;
    std::memcpy(&pair, bytes.data(), sizeof pair);
    if (pair.old == old.value) return base::ExecId{pair.now};
    (pair.old < old.value ? begin : end) = pair.old < old.value ? middle + 1 : middle;
  }
  return std::nullopt;
}

}  // namespace moorage::workspace
