#include "base/wire/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "base/os/fd.h"
#include "base/os/files.h"
#include "temporary_directory.h"

using namespace moorage;
using base::Frame;
using base::FrameKind;
using base::JournalReader;

namespace {

// A journal as a writer makes it, with the frames a reader should find.
class Journal {
 public:
  Journal() : fd_(base::open_file(directory_ / "output", O_RDWR | O_CREAT | O_APPEND, 0600)) {}

  void add(FrameKind kind, const std::string& payload) {
    base::FrameHeader header{kind, static_cast<uint32_t>(payload.size()), 1'000 + count_++,
                             offset_};
    const auto bytes = base::encode_frame_header(header, payload);
    base::write_all(fd_.get(), std::string(bytes.data(), bytes.size()) + payload);
    if (base::is_output(kind)) {
      output_ += payload;
      offset_ += payload.size();
    }
  }
  int fd() const { return fd_.get(); }
  const std::string& output() const { return output_; }
  std::string bytes() const { return base::read_file(directory_ / "output"); }
  void cut(size_t size) { REQUIRE(ftruncate(fd_.get(), static_cast<off_t>(size)) == 0); }
  void overwrite(const std::string& all) {
    cut(0);
    base::write_all(fd_.get(), all);
  }

 private:
  test::TemporaryDirectory directory_;
  base::Fd fd_;
  std::string output_;
  uint64_t offset_ = 0;
  int64_t count_ = 0;
};

Journal& fill(Journal& journal) {
  journal.add(FrameKind::started, "{\"pid\": 7}");
  journal.add(FrameKind::standard_output, "hello ");
  journal.add(FrameKind::standard_error, "oops\n");
  journal.add(FrameKind::standard_output,
              std::string("\0MJ1\n", 5));  // cannot forge: it is payload
  journal.add(FrameKind::terminal, "");
  journal.add(FrameKind::limit, "");
  journal.add(FrameKind::end, "{\"code\": 0}");
  return journal;
}

std::vector<Frame> read_all(JournalReader& reader) {
  std::vector<Frame> frames;
  while (auto frame = reader.next()) frames.push_back(std::move(*frame));
  return frames;
}

std::string output_of(const std::vector<Frame>& frames) {
  std::string output;
  for (const Frame& frame : frames) {
    if (base::is_output(frame.header.kind)) output += frame.payload;
  }
  return output;
}

}  // namespace

TEST_CASE("frames are read as they were written") {
  Journal journal;
  fill(journal);
  JournalReader reader(journal.fd());
  const auto frames = read_all(reader);
  REQUIRE(frames.size() == 7);
  CHECK(frames[0].payload == "{\"pid\": 7}");
  CHECK(frames[2].header.kind == FrameKind::standard_error);
  CHECK(frames[2].header.output_offset == 6);
  CHECK(frames[2].header.wall_ns == 1002);
  CHECK(frames[6].header.kind == FrameKind::end);
  CHECK(frames[6].header.output_offset == 16);
  CHECK(output_of(frames) == journal.output());
  CHECK_FALSE(reader.damaged());
  CHECK(reader.file_position() == journal.bytes().size());
}

TEST_CASE("the header bytes match the format") {
  const std::string payload = "abc";
  const auto bytes =
      base::encode_frame_header({FrameKind::standard_error, 3, 0x0102030405060708, 0x11}, payload);
  const std::string text(bytes.data(), bytes.size());
  CHECK(text.substr(0, 12) == std::string("MJ1\n\x02\0\0\0\x03\0\0\0", 12));
  CHECK(text.substr(16) == std::string("\x08\x07\x06\x05\x04\x03\x02\x01\x11\0\0\0\0\0\0\0", 16));
  // crc32 of bytes 0-11, 16-31 and the payload, computed by another implementation
  CHECK(text.substr(12, 4) == std::string("\x88\xa5\x2d\x77", 4));
}

TEST_CASE("a journal cut at any byte reads to its last whole frame and is reported damaged") {
  Journal journal;
  const std::string whole = fill(journal).bytes();
  std::vector<size_t> ends{0};
  {
    JournalReader reader(journal.fd());
    while (reader.next()) ends.push_back(reader.file_position());
  }
  for (size_t size = 0; size < whole.size(); ++size) {
    journal.overwrite(whole.substr(0, size));
    JournalReader reader(journal.fd());
    const size_t frames = read_all(reader).size();
    const auto expected = std::upper_bound(ends.begin(), ends.end(), size) - ends.begin() - 1;
    const bool torn = ends[static_cast<size_t>(expected)] != size;
    if (frames != static_cast<size_t>(expected) || reader.damaged() != torn) {
      FAIL("cut at " << size << ": " << frames << " frames, damaged " << reader.damaged());
    }
    // Seeking in the same damaged journal finds the same bytes.
    reader.seek_output(0);
    const std::string output = output_of(read_all(reader));
    reader.seek_output(3);
    if (output_of(read_all(reader)) != output.substr(std::min<size_t>(3, output.size()))) {
      FAIL("cut at " << size << ": seeking differs");
    }
  }
}

TEST_CASE("a flipped bit anywhere stops the reader before its frame") {
  Journal journal;
  const std::string whole = fill(journal).bytes();
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << (at % 8)));
    journal.overwrite(bytes);
    JournalReader reader(journal.fd());
    read_all(reader);
    if (!reader.damaged() || reader.file_position() > at) FAIL("flip at " << at << " unnoticed");
  }
}

TEST_CASE("a whole frame with a wrong offset is damage") {
  Journal journal;
  journal.add(FrameKind::standard_output, "abc");
  const auto header = base::encode_frame_header({FrameKind::standard_output, 1, 0, 2}, "x");
  base::write_all(journal.fd(), std::string(header.data(), header.size()) + "x");
  JournalReader reader(journal.fd());
  CHECK(read_all(reader).size() == 1);
  CHECK(reader.damaged());
}

TEST_CASE("seeking finds every output byte") {
  Journal journal;
  fill(journal);
  for (uint64_t offset = 0; offset <= journal.output().size(); ++offset) {
    JournalReader reader(journal.fd());
    reader.seek_output(offset);
    const auto frames = read_all(reader);
    CHECK(output_of(frames) == journal.output().substr(offset));
    CHECK(frames.back().header.kind == FrameKind::end);
    for (const Frame& frame : frames) {
      CHECK(frame.header.output_offset >= offset);
      CHECK(frame.header.payload_bytes == frame.payload.size());
    }
    reader.seek_output(0);
    CHECK(read_all(reader).size() == 7);
  }
}

TEST_CASE("seeking reads only headers: it skips damage in a payload") {
  Journal journal;
  journal.add(FrameKind::standard_output, std::string(100, 'a'));
  journal.add(FrameKind::standard_output, "rest");
  std::string bytes = journal.bytes();
  bytes[base::kFrameHeaderBytes + 50] = 'b';
  journal.overwrite(bytes);
  JournalReader reader(journal.fd());
  CHECK_FALSE(reader.next());
  reader.seek_output(100);
  CHECK(reader.next()->payload == "rest");
}

TEST_CASE("a reader follows a live writer, even through a half-written frame") {
  Journal journal;
  JournalReader reader(journal.fd());
  CHECK_FALSE(reader.next());
  CHECK_FALSE(reader.damaged());
  journal.add(FrameKind::standard_output, "first");
  CHECK(reader.next()->payload == "first");
  CHECK_FALSE(reader.next());
  const auto header = base::encode_frame_header({FrameKind::standard_output, 6, 0, 5}, "second");
  base::write_all(journal.fd(), std::string(header.data(), header.size()) + "sec");
  CHECK_FALSE(reader.next());
  CHECK(reader.damaged());
  base::write_all(journal.fd(), "ond");
  CHECK(reader.next()->payload == "second");
  CHECK_FALSE(reader.damaged());
}

TEST_CASE("seeking to an offset not yet written waits for it") {
  Journal journal;
  journal.add(FrameKind::standard_output, "0123");
  JournalReader reader(journal.fd());
  reader.seek_output(7);
  CHECK_FALSE(reader.next());
  journal.add(FrameKind::standard_output, "456789");
  CHECK(reader.next()->payload == "789");
  journal.add(FrameKind::end, "{}");
  reader.seek_output(1000);
  CHECK(reader.next()->header.kind == FrameKind::end);
}

TEST_CASE("random journals survive random cuts and seeks") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 50; ++round) {
    Journal journal;
    for (unsigned i = 0; i < random() % 30; ++i) {
      journal.add(static_cast<FrameKind>(1 + random() % 5),
                  std::string(random() % 3000, 'a' + i % 26));
    }
    const uint64_t offset = random() % (journal.output().size() + 1);
    JournalReader reader(journal.fd());
    reader.seek_output(offset);
    CHECK(output_of(read_all(reader)) == journal.output().substr(offset));
    journal.cut(random() % (journal.bytes().size() + 1));
    JournalReader cut(journal.fd());
    const std::string found = output_of(read_all(cut));
    CHECK(journal.output().starts_with(found));
  }
}

namespace {

std::string gap_frame(uint64_t offset, const base::Gap& gap) {
  const std::string payload = base::encode_gap(gap);
  const auto header = base::encode_frame_header(
      {FrameKind::gap, static_cast<uint32_t>(payload.size()), 1, offset}, payload);
  return std::string(header.data(), header.size()) + payload;
}

void write_at(int fd, uint64_t offset, const std::string& bytes) {
  // Through another descriptor: this one is append-only.
  const base::Fd file = base::open_file("/proc/self/fd/" + std::to_string(fd), O_WRONLY);
  REQUIRE(pwrite(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)) ==
          static_cast<ssize_t>(bytes.size()));
}

}  // namespace

TEST_CASE("a gap is skipped by its dropped size, and offsets continue after it") {
  Journal journal;
  journal.add(FrameKind::standard_output, "head");
  base::write_all(journal.fd(), gap_frame(4, {0, 96, 5, 6}));
  const auto header = base::encode_frame_header({FrameKind::standard_output, 4, 7, 100}, "tail");
  base::write_all(journal.fd(), std::string(header.data(), header.size()) + "tail");
  JournalReader reader(journal.fd());
  const auto frames = read_all(reader);
  REQUIRE(frames.size() == 3);
  CHECK(base::decode_gap(frames[1].payload)->dropped_bytes == 96);
  CHECK(frames[2].header.output_offset == 100);
  CHECK(reader.output_offset() == 104);
  CHECK_FALSE(reader.damaged());
  for (const uint64_t offset : {50u, 99u}) {  // in the gap: the gap itself, then the next frame
    reader.seek_output(offset);
    CHECK(reader.next()->header.kind == FrameKind::gap);
    CHECK(reader.next()->payload == "tail");
  }
  reader.seek_output(102);
  CHECK(reader.next()->payload == "il");
}

TEST_CASE("a reader in the middle of a removed range finds its way around it") {
  Journal journal;
  std::vector<uint64_t> places;
  for (int i = 0; i < 9; ++i) {
    places.push_back(journal.bytes().size());
    journal.add(FrameKind::standard_output, std::string(1000, static_cast<char>('a' + i)));
  }
  std::vector<JournalReader> readers(9, JournalReader(journal.fd()));
  for (size_t i = 0; i < readers.size(); ++i) {
    for (size_t k = 0; k < i; ++k) REQUIRE(readers[i].next());
  }
  const base::Gap gap{places[6] - places[2] - 64, 4000, 1, 2};
  write_at(journal.fd(), places[2], gap_frame(2000, gap));
  JournalReader before_punch(journal.fd());
  CHECK(read_all(before_punch).size() == 6);
  write_at(journal.fd(), places[2] + 64, std::string(gap.skip_bytes, '\0'));
  for (size_t i = 0; i < readers.size(); ++i) {
    CAPTURE(i);
    const auto frames = read_all(readers[i]);
    CHECK_FALSE(readers[i].damaged());
    REQUIRE(frames.size() == (i <= 2 ? 6 - i : i <= 6 ? 4 - (i == 6) : 9 - i));
    CHECK(frames.back().payload == std::string(1000, 'i'));
  }
}

TEST_CASE("a gap that leads outside the journal is damage") {
  for (const base::Gap& gap : {base::Gap{1, 1, 0, 0}, base::Gap{UINT64_MAX - 10, 1, 0, 0},
                               base::Gap{0, UINT64_MAX, 0, 0}}) {
    Journal journal;
    base::write_all(journal.fd(), gap_frame(0, gap));
    JournalReader reader(journal.fd());
    CHECK(read_all(reader).empty());
    CHECK(reader.damaged());
    reader.seek_output(7);
    CHECK_FALSE(reader.next());
  }
}
