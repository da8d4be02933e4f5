#include "base/wire/journal_middle.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <random>

#include "base/os/fd.h"
#include "base/os/files.h"
#include "base/temporary_directory.h"

using namespace moorage;
using base::FrameKind;
using base::JournalMiddle;

namespace {

constexpr uint64_t kLimit = 1 << 20;

// A journal as a warden writes it and the daemon that reads it cuts it.
class Running {
 public:
  Running() : file_(base::open_file(path(), O_RDWR | O_CREAT | O_APPEND, 0600)) {}
  ~Running() { base::remove_tree(directory_.path()); }  // also what is append-only
  std::string path() const { return directory_.path() + "/output"; }

  void write(FrameKind kind, const std::string& payload) {
    const auto header = base::encode_frame_header(
        {kind, static_cast<uint32_t>(payload.size()), ++clock_, offset_}, payload);
    base::write_all(file_.get(), std::string(header.data(), header.size()) + payload);
    if (base::is_output(kind)) {
      output_ += payload;
      offset_ += payload.size();
    }
  }
  // As after a start of the daemon: reads everything again.
  void restart() {
    middle_ = std::make_unique<base::JournalMiddle>(kLimit);
    reader_ = std::make_unique<base::JournalReader>(file_.get());
  }
  // `upto`: the step at which a kill ends the cut. 0: nothing done, 1: only the mark, 2: all.
  void look(int upto = 2) {
    for (uint64_t at = reader_->file_position(); auto frame = reader_->next();
         at = reader_->file_position())
      middle_->passed(*frame, at, reader_->file_position());
    const auto cut = middle_->next_cut(kLimit);
    if (!cut) return;
    middle_->done(*cut);
    if (upto == 2) base::cut_journal(path(), *cut);
    if (upto == 1) {
      const base::Gap gap{cut->end - cut->begin - 64, cut->end_offset - cut->begin_offset,
                          cut->first_ns, cut->last_ns};
      const std::string payload = base::encode_gap(gap);
      const auto header = base::encode_frame_header(
          {FrameKind::gap, static_cast<uint32_t>(payload.size()), 1, cut->begin_offset}, payload);
      base::set_append_only(file_.get(), false);  // as an earlier cut left it
      const base::Fd file = base::open_file(path(), O_WRONLY);
      const std::string frame = std::string(header.data(), header.size()) + payload;
      REQUIRE(pwrite(file.get(), frame.data(), frame.size(), static_cast<off_t>(cut->begin)) == 64);
    }
  }
  uint64_t disk_bytes() const {
    struct stat status;
    REQUIRE(fstat(file_.get(), &status) == 0);
    return static_cast<uint64_t>(status.st_blocks) * 512;
  }
  // Head, gap, tail and the end match the written bytes.
  void check_whole() const {
    base::JournalReader reader(file_.get());
    uint64_t kept = 0, dropped = 0;
    int gaps = 0;
    bool ended = false;
    while (auto frame = reader.next()) {
      if (frame->header.kind == FrameKind::gap) {
        ++gaps;
        const auto gap = base::decode_gap(frame->payload).value();
        dropped += gap.dropped_bytes;
        CHECK(gap.first_ns <= gap.last_ns);
      }
      ended = frame->header.kind == FrameKind::end;
      if (!base::is_output(frame->header.kind)) continue;
      kept += frame->payload.size();
      REQUIRE(output_.compare(frame->header.output_offset, frame->payload.size(), frame->payload) ==
              0);
    }
    CHECK_FALSE(reader.damaged());
    CHECK(ended);
    CHECK(gaps <= 1);
    CHECK(kept + dropped == output_.size());
    CHECK(reader.output_offset() == output_.size());
  }
  const std::string& output() const { return output_; }
  uint64_t dropped() const { return middle_->dropped_bytes(); }
  int fd() const { return file_.get(); }

 private:
  test::TemporaryDirectory directory_;
  base::Fd file_;
  std::string output_;
  uint64_t offset_ = 0;
  int64_t clock_ = 0;
  std::unique_ptr<base::JournalMiddle> middle_ = std::make_unique<base::JournalMiddle>(kLimit);
  std::unique_ptr<base::JournalReader> reader_ = std::make_unique<base::JournalReader>(fd());
};

std::string some_bytes(std::mt19937& chance, size_t most) {
  std::string bytes(std::uniform_int_distribution<size_t>(1, most)(chance), '\0');
  for (char& c : bytes) c = static_cast<char>(chance());
  return bytes;
}

}  // namespace

TEST_CASE("a long journal keeps its beginning and its end, and stays below its limit") {
  const size_t most = GENERATE(100u, 3000u, 65536u);
  std::mt19937 chance(7);
  Running journal;
  journal.write(FrameKind::started, "{\"pid\":2}");
  const size_t total = most == 100 ? 6 << 20 : 30 << 20;
  while (journal.output().size() < total) {
    for (int i = 0; i < 40; ++i)
      journal.write(FrameKind::standard_output, some_bytes(chance, most));
    journal.look();
    CHECK(journal.disk_bytes() < base::journal_room(kLimit) + 40 * most * 3);
  }
  journal.write(FrameKind::end, "{}");
  journal.check_whole();
  CHECK(journal.dropped() > total / 2);
  CHECK(journal.disk_bytes() < kLimit + 40 * most * 3);
  base::JournalReader reader(journal.fd());
  std::string head;
  while (auto frame = reader.next()) {
    if (frame->header.kind == FrameKind::gap) break;
    if (base::is_output(frame->header.kind)) head += frame->payload;
  }
  CHECK(head.size() > kLimit / 16);
  CHECK(journal.output().starts_with(head));
  const uint64_t tail = kLimit / 5;
  reader.seek_output(journal.output().size() - tail);
  std::string end;
  while (auto frame = reader.next()) {
    if (base::is_output(frame->header.kind)) end += frame->payload;
  }
  CHECK(end == journal.output().substr(journal.output().size() - tail));
}

TEST_CASE("a short journal loses nothing") {
  Running journal;
  while (journal.output().size() < kLimit * 7 / 10) {
    journal.write(FrameKind::terminal, std::string(1000, 'x'));
    journal.look();
  }
  journal.write(FrameKind::end, "{}");
  journal.check_whole();
  CHECK(journal.dropped() == 0);
}

TEST_CASE("a daemon that dies at any moment of a cut leaves the journal whole") {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    std::mt19937 chance(seed);
    CAPTURE(seed);
    Running journal;
    while (journal.output().size() < (12 << 20)) {
      for (int i = 0; i < 10; ++i)
        journal.write(FrameKind::standard_output, some_bytes(chance, 20'000));
      const int upto = static_cast<int>(chance() % 6);
      journal.look(std::min(upto, 2));
      if (upto < 2) journal.restart();
    }
    journal.look();
    journal.write(FrameKind::end, "{}");
    journal.check_whole();
    CHECK(journal.disk_bytes() < kLimit * 2);
  }
}

TEST_CASE("a copy of a journal that is cut meanwhile is whole") {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    std::mt19937 chance(seed);
    CAPTURE(seed);
    Running journal;
    const auto flood = [&](size_t bytes) {
      for (const size_t end = journal.output().size() + bytes; journal.output().size() < end;) {
        journal.write(FrameKind::standard_output, some_bytes(chance, 20'000));
        journal.look();
      }
    };
    journal.write(FrameKind::started, "{\"pid\":2}");
    flood(kLimit * (seed % 3) + kLimit / 2);
    const size_t before = journal.output().size();
    const size_t cut_at = chance() % (kLimit / 2);
    size_t bytes = 0;
    test::TemporaryDirectory directory;
    const base::Fd copy = base::open_file(directory.path() + "/copy", O_RDWR | O_CREAT, 0600);
    const auto made = base::copy_journal(journal.fd(), [&](std::string_view piece) {
      base::write_all(copy.get(), piece);
      if (bytes < cut_at && bytes + piece.size() >= cut_at) flood(2 * kLimit);
      bytes += piece.size();
    });
    CHECK(bytes < 2 * kLimit);
    CHECK(made.output_bytes >= before);
    uint64_t offset = 0, dropped = 0;
    base::JournalReader reader(copy.get());
    while (auto frame = reader.next()) {
      if (frame->header.kind == FrameKind::gap) {
        const auto gap = base::decode_gap(frame->payload).value();
        CHECK(gap.skip_bytes == 0);
        CHECK(gap.first_ns <= gap.last_ns);
        dropped += gap.dropped_bytes;
      }
      offset = reader.output_offset();
      if (!base::is_output(frame->header.kind)) continue;
      REQUIRE(journal.output().compare(frame->header.output_offset, frame->payload.size(),
                                       frame->payload) == 0);
    }
    CHECK_FALSE(reader.damaged());
    CHECK(offset == made.output_bytes);
    CHECK(dropped == made.dropped_bytes);
    CHECK(dropped > 0);
  }
}

TEST_CASE("a reader whose frame is cut away continues after the gap") {
  Running journal;
  for (int i = 0; i < 4; ++i)
    journal.write(FrameKind::standard_output, std::string(10'000, static_cast<char>('a' + i)));
  base::JournalReader reader(journal.fd());
  std::vector<uint64_t> begins;
  for (base::JournalReader all(journal.fd()); all.next();) begins.push_back(all.file_position());
  REQUIRE(reader.next());
  REQUIRE(reader.next());  // the third is next; its header may have been read already
  const base::JournalMiddle::Cut cut{begins[0], begins[2], 10'000, 30'000, 1, 2};
  base::cut_journal(journal.path(), cut);
  base::set_append_only(journal.fd(), false);
  const base::Fd file = base::open_file(journal.path(), O_WRONLY);
  const auto header = base::encode_frame_header({FrameKind::standard_output, 10'000, 3, 20'000},
                                                std::string(10'000, 'c'));
  REQUIRE(pwrite(file.get(), header.data(), header.size(), static_cast<off_t>(begins[1])) == 32);
  const auto gap = reader.next();
  REQUIRE(gap);
  CHECK(gap->header.kind == FrameKind::gap);
  CHECK(reader.output_offset() == 30'000);
  const auto last = reader.next();
  REQUIRE(last);
  CHECK(last->payload == std::string(10'000, 'd'));
}

TEST_CASE("a compact journal has the same contents without its hole") {
  std::mt19937 chance(3);
  Running journal;
  while (journal.output().size() < (8 << 20)) {
    journal.write(FrameKind::standard_error, some_bytes(chance, 30'000));
    journal.look();
  }
  journal.write(FrameKind::end, "{}");
  test::TemporaryDirectory directory;
  const base::Fd copy = base::open_file(directory.path() + "/copy", O_RDWR | O_CREAT, 0600);
  uint64_t size = 0;
  for (const auto& part : base::compact_journal(journal.fd())) {
    base::write_all(copy.get(), part.bytes.empty()
                                    ? base::read_at(journal.fd(), part.size, part.offset)
                                    : part.bytes);
    size += part.size;
  }
  CHECK(size < kLimit * 2);
  base::JournalReader whole(journal.fd()), compact(copy.get());
  while (auto frame = whole.next()) {
    const auto same = compact.next();
    REQUIRE(same);
    CHECK(same->header.output_offset == frame->header.output_offset);
    if (frame->header.kind != FrameKind::gap) CHECK(same->payload == frame->payload);
  }
  CHECK_FALSE(compact.next());
  CHECK_FALSE(compact.damaged());
}
