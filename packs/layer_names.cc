#include "packs/layer_names.h"

#include <sys/random.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <queue>
#include <utility>

#include "base/digest.h"
#include "base/error.h"

namespace moorage::packs {
namespace {

constexpr size_t kSeedBytes = 16;
constexpr size_t kRunRecords = 1 << 18;    // 4 MiB
constexpr size_t kPieceRecords = 1 << 10;  // read from each run at a time while merging

std::string make_seed() {
  std::string seed(kSeedBytes, '\0');
  const ssize_t size = getrandom(seed.data(), seed.size(), 0);
  if (base::check(size, "get a random number") != static_cast<ssize_t>(seed.size()))
    throw Error(Code::io, "the kernel returned too few random bytes");
  return seed;
}

}  // namespace

// Sorts names of a path before the links to it.
bool LayerNames::Record::operator<(const Record& other) const {
  if (path != other.path) return path < other.path;
  if ((kind == Kind::link) != (other.kind == Kind::link)) return other.kind == Kind::link;
  return place < other.place;
}

// A sorted run in the file, read in order.
class LayerNames::Run {
 public:
  Run(const Fd& file, uint64_t number)
      : file_(file.get()), at_(number * kRunRecords), end_(at_ + kRunRecords) {}

  std::optional<Record> next() {
    if (used_ == piece_.size()) {
      piece_.resize(std::min<uint64_t>(kPieceRecords, end_ - at_));
      const size_t bytes = piece_.size() * sizeof(Record);
      const std::string read = base::read_at(file_, bytes, at_ * sizeof(Record));
      if (read.size() != bytes) throw Error(Code::internal, "a temporary file is too short");
      std::memcpy(piece_.data(), read.data(), bytes);
      at_ += piece_.size();
      used_ = 0;
    }
    if (piece_.empty()) return std::nullopt;
    return piece_[used_++];
  }

 private:
  const int file_;
  uint64_t at_;
  const uint64_t end_;
  std::vector<Record> piece_;
  size_t used_ = 0;
};

// Takes all records in order.
class LayerNames::Judge {
 public:
  // False: the verdict is final.
  bool take(const Record& record) {
    const bool same = name_ && name_->path == record.path;
    if (record.kind != Kind::link) {
      if (same) verdict_ = Verdict::name_twice;
      name_ = record;
    } else if (!same || name_->kind != Kind::name || name_->place >= record.place) {
      verdict_ = Verdict::link_to_nothing;
    }
    return verdict_ == Verdict::good;
  }
  Verdict verdict() const { return verdict_; }

 private:
  std::optional<Record> name_;
  Verdict verdict_ = Verdict::good;
};

LayerNames::LayerNames(std::function<Fd()> make_file)
    : make_file_(std::move(make_file)), seed_(make_seed()) {}

uint64_t LayerNames::hash_of(const std::string& path) const {
  base::Sha256 digest;
  digest.add(seed_);
  digest.add(path);
  uint64_t hash = 0;
  std::memcpy(&hash, digest.raw().data(), sizeof hash);
  return hash;
}

void LayerNames::add(const std::string& path, bool may_have_others) {
  add(Record{hash_of(path), names_++, may_have_others ? Kind::name : Kind::only_name});
}

void LayerNames::add_link(const std::string& target) {
  add(Record{hash_of(target), names_ - 1, Kind::link});
}

void LayerNames::add(const Record& record) {
  records_.push_back(record);
  if (records_.size() == kRunRecords) write_run();
}

void LayerNames::write_run() {
  static_assert(sizeof(Record) == 16);
  std::sort(records_.begin(), records_.end());
  if (!file_) file_ = make_file_();
  const size_t bytes = records_.size() * sizeof(Record);
  base::write_at(file_.get(), {reinterpret_cast<const char*>(records_.data()), bytes},
                 runs_ * bytes);
  ++runs_;
  records_.clear();
}

LayerNames::Verdict LayerNames::finish() {
  std::sort(records_.begin(), records_.end());
  std::vector<Run> runs;
  for (uint64_t number = 0; number < runs_; ++number) runs.emplace_back(file_, number);
  size_t used = 0;  // of the last run, which stays in memory
  const auto next_of = [&](size_t run) -> std::optional<Record> {
    if (run < runs.size()) return runs[run].next();
    if (used == records_.size()) return std::nullopt;
    return records_[used++];
  };
  using Next = std::pair<Record, size_t>;  // a record and its run
  const auto later = [](const Next& one, const Next& other) { return other.first < one.first; };
  std::priority_queue<Next, std::vector<Next>, decltype(later)> queue(later);
  const auto refill = [&](size_t run) {
    if (const auto record = next_of(run)) queue.emplace(*record, run);
  };
  for (size_t run = 0; run <= runs.size(); ++run) refill(run);
  Judge judge;
  while (!queue.empty()) {
    const auto [record, run] = queue.top();
    queue.pop();
    if (!judge.take(record)) break;
    refill(run);
  }
  std::vector<Record>().swap(records_);
  file_.reset();
  runs_ = 0;
  return judge.verdict();
}

}  // namespace moorage::packs
