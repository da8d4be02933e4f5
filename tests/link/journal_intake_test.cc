#include "link/journal_intake.h"

#include <fcntl.h>
#include <unistd.h>

#include <random>

#include "base/little_endian.h"
#include "base/os/files.h"
#include "base/temporary_directory.h"
#include "base/wire/journal.h"
#include "other_side.h"

using namespace moorage;
using base::FrameKind;

namespace {

struct Host : link::JournalHost {
  void sync_for_end(std::function<void()> done) override { syncs.push_back(std::move(done)); }
  void journal_finished(const std::string&) override { finished = true; }
  void journal_failed(const std::string&, const Error& reason) override {
    failed = reason.message();
  }
  std::vector<std::function<void()>> syncs;
  bool finished = false;
  std::string failed;
};

// A spool's bytes.
class Spool {
 public:
  void add(FrameKind kind, const std::string& payload) {
    const base::FrameHeader header{kind, static_cast<uint32_t>(payload.size()), 1'000, offset_};
    const auto head = base::encode_frame_header(header, payload);
    bytes += std::string(head.data(), head.size()) + payload;
    if (base::is_output(kind)) offset_ += payload.size();
  }
  std::string bytes;

 private:
  uint64_t offset_ = 0;
};

Spool make_spool(int frames) {
  std::mt19937 random(5);
  Spool spool;
  spool.add(FrameKind::started, "{\"pid\":7}");
  for (int i = 0; i < frames; ++i)
    spool.add(FrameKind::standard_output, std::string(random() % 9000, static_cast<char>(i)));
  return spool;
}

struct World {
  World() : file(directory / "output") { open(); }
  // As a new worker does it, with a new stream.
  void open(uint64_t room = 0) {
    journal.reset();
    there.reset();
    there = std::make_unique<test::OtherSide>(loop);
    link::JournalFile kept{"ex_5", base::open_file(file, O_WRONLY | O_APPEND | O_CREAT, 0600),
                           room};
    journal = std::make_shared<link::Journal>(loop, host, std::move(kept));
    journal->follow(*there->stream);
    channel = there->await("journal");
  }
  std::string here() const { return base::read_file(file); }
  uint64_t asked_from() const {
    return there->request.at(channel).at("offset").to_number<uint64_t>();
  }

  test::TemporaryDirectory directory;
  std::string file;
  base::Loop loop;
  Host host;
  std::unique_ptr<test::OtherSide> there;
  std::shared_ptr<link::Journal> journal;
  uint32_t channel = 0;
};

}  // namespace

TEST_CASE("The end of a command waits for a sync that began after it arrived") {
  World world;
  Spool spool = make_spool(20);
  const size_t before_end = spool.bytes.size();
  spool.add(FrameKind::end, "{\"exit_code\":0}");
  spool.add(FrameKind::standard_output, "late output");
  world.there->send(world.channel, spool.bytes);
  world.there->end(world.channel);
  world.there->until([&] { return world.host.syncs.size() == 1; });
  world.there->pass(20);
  CHECK(world.here() == spool.bytes.substr(0, before_end));
  CHECK_FALSE(world.host.finished);
  world.host.syncs[0]();
  world.there->until([&] { return world.host.finished; });
  CHECK(world.here() == spool.bytes);
  CHECK(world.host.failed.empty());
  world.there->pass(5);
  // The other side knows which bytes it may forget.
  const std::string& acknowledged = world.there->received[world.channel];
  REQUIRE(acknowledged.size() % 8 == 0);
  CHECK(base::number_at<uint64_t>(&acknowledged[acknowledged.size() - 8]) == spool.bytes.size());
}

TEST_CASE(
    "Late output waits behind its end, and is appended or refused once a sync released that") {
  for (const bool is_hostile : {false, true}) {
    World world;
    Spool spool = make_spool(3);
    spool.add(FrameKind::end, "{\"exit_code\":0}");
    const size_t good = spool.bytes.size();
    spool.add(FrameKind::standard_output, std::string(50'000, 'l'));
    if (is_hostile) spool.bytes[good + 40] ^= 1;
    world.there->send(world.channel, spool.bytes.substr(0, good));
    for (size_t at = good; at < spool.bytes.size(); at += 997)
      world.there->send(world.channel, spool.bytes.substr(at, 997));
    world.there->end(world.channel);
    world.there->until([&] { return world.host.syncs.size() == 1; });
    world.there->pass(5);
    CHECK(world.host.failed.empty());
    world.host.syncs[0]();
    world.there->until([&] { return world.host.finished || !world.host.failed.empty(); });
    CHECK(world.host.finished != is_hostile);
    if (!is_hostile) CHECK(world.here() == spool.bytes);
  }
}

TEST_CASE("However often the worker is killed, the journal has each byte of the spool once") {
  World world;
  Spool spool = make_spool(200);
  const size_t before_end = spool.bytes.size();
  spool.add(FrameKind::end, "{\"exit_code\":0}");
  std::mt19937 random(11);
  for (int round = 0; round < 40; ++round) {
    const uint64_t from = world.asked_from();
    REQUIRE(world.here() == spool.bytes.substr(0, from));
    const size_t size = random() % 60'000;
    world.there->send(world.channel, std::string_view(spool.bytes).substr(from, size));
    world.there->pass(random() % 4);
    // A write that was cut in the middle of a frame.
    const std::string now = world.here();
    if (round % 3 == 0 && now.size() + 5 < before_end) {
      const base::Fd torn = base::open_file(world.file, O_WRONLY | O_APPEND);
      base::write_all(torn.get(), std::string_view(spool.bytes).substr(now.size(), 5));
    }
    world.open();
  }
  world.there->send(world.channel, std::string_view(spool.bytes).substr(world.asked_from()));
  world.there->end(world.channel);
  world.there->until([&] { return !world.host.syncs.empty(); });
  world.host.syncs.back()();
  world.there->until([&] { return world.host.finished; });
  CHECK(world.here() == spool.bytes);
}

TEST_CASE("A sync of an earlier stream does not release the end") {
  World world;
  Spool spool = make_spool(1);
  spool.add(FrameKind::end, "{}");
  world.there->send(world.channel, spool.bytes);
  world.there->until([&] { return world.host.syncs.size() == 1; });
  world.there->cut();
  world.there->until([&] { return !world.there->broken.empty(); });
  world.host.syncs[0]();
  world.there->pass(5);
  CHECK(world.here().size() < spool.bytes.size());
}

TEST_CASE("A frame that a hostile machine made up is never appended") {
  Spool spool = make_spool(3);
  const size_t good = spool.bytes.size();
  const Spool before = spool;
  spool.add(FrameKind::standard_output, "more");
  std::vector<std::string> hostile{std::string(100, 'x')};
  for (const size_t at : {size_t{0}, size_t{4}, size_t{5}, size_t{9}, size_t{12}, size_t{33}}) {
    std::string bytes = spool.bytes.substr(good);
    bytes[at] = static_cast<char>(bytes[at] ^ 0x41);
    hostile.push_back(bytes);
  }
  for (const base::Gap& dropped : {base::Gap{.skip_bytes = 100, .dropped_bytes = 1},
                                   base::Gap{.dropped_bytes = UINT64_MAX - 1}}) {
    Spool gap = before;
    gap.add(FrameKind::gap, base::encode_gap(dropped));
    hostile.push_back(gap.bytes.substr(good));
  }
  Spool again;
  again.add(FrameKind::standard_output, "the beginning of the output again");
  hostile.push_back(again.bytes);
  for (const std::string& bytes : hostile) {
    CAPTURE(bytes);
    World world;
    world.there->send(world.channel,
                      spool.bytes.substr(0, good) + bytes + std::string(70'000, '\0'));
    world.there->until([&] { return !world.host.failed.empty(); });
    CHECK(world.here() == spool.bytes.substr(0, good).substr(0, world.here().size()));
  }
}

TEST_CASE("A journal takes no more of the disk than its room") {
  World world;
  world.open(1 << 20);
  Spool spool = make_spool(4000);
  REQUIRE(spool.bytes.size() > 17 << 20);
  size_t sent = 0;
  for (int i = 0; i < 2500; ++i) {
    const size_t size =
        std::min({world.there->mux.room(world.channel), spool.bytes.size() - sent, size_t{7000}});
    world.there->mux.send(world.channel, std::string_view(spool.bytes).substr(sent, size));
    sent += size;
    world.there->step();
  }
  CHECK(world.here().size() < (1 << 20) + link::kRoomSlackBytes + (1 << 20));
  CHECK(world.here().size() > link::kRoomSlackBytes);
  CHECK(world.here() == spool.bytes.substr(0, world.here().size()));
}

TEST_CASE("A spool that is not there yet is asked for again") {
  World world;
  world.there->mux.reset(world.channel, Error(Code::not_found, "no such spool"));
  world.channel = world.there->await("journal");
  CHECK(world.host.failed.empty());
  world.there->mux.reset(world.channel, Error(Code::corrupted, "gone"));
  world.there->until([&] { return !world.host.failed.empty(); });
}
