#include "link/sync_intake.h"

#include <sys/mount.h>
#include <unistd.h>

#include "base/os/files.h"
#include "base/temporary_directory.h"
#include "other_side.h"

using namespace moorage;

namespace {

struct World {
  World() { open(); }
  void open(bool ahead = false) {
    intake.reset();
    there = std::make_unique<test::OtherSide>(loop);
    intake = std::make_unique<link::SyncIntake>(loop, directory.path());
    intake->attach(*there->stream, ahead);
  }
  void ask() {
    intake->request([this](const Error* error) {
      ++answers;
      last_error = error ? error->message() : "";
    });
  }
  const boost::json::value& request(uint32_t channel, const char* field) {
    return there->request.at(channel).at(field);
  }
  uint64_t acknowledged(uint32_t channel) {
    return request(channel, "acknowledged").to_number<uint64_t>();
  }
  std::vector<std::string> packs() const {
    std::vector<std::string> names = base::list_directory(directory / "incoming");
    std::erase_if(names, [](const auto& name) { return !name.ends_with(".pack"); });
    return names;
  }

  test::TemporaryDirectory directory;
  base::Loop loop;
  std::unique_ptr<test::OtherSide> there;
  std::unique_ptr<link::SyncIntake> intake;
  int answers = 0;
  std::string last_error;
};

}  // namespace

TEST_CASE("A pack has its name only when it is complete, and its number rises") {
  World world;
  world.ask();
  uint32_t channel = world.there->await("sync");
  CHECK(world.acknowledged(channel) == 0);
  const std::string pack(3 << 20, 'p');
  world.there->send(channel, pack);
  world.there->pass(5);
  CHECK(world.packs().empty());
  CHECK(world.answers == 0);
  world.there->end(channel);
  world.there->until([&] { return world.answers == 1; });
  CHECK(world.last_error.empty());
  CHECK(world.packs() == std::vector<std::string>{"1.pack"});
  CHECK(base::read_file(world.directory / "incoming/1.pack") == pack);
  world.ask();
  channel = world.there->await("sync");
  CHECK(world.acknowledged(channel) == 1);
  world.there->end(channel);  // nothing changed
  world.there->until([&] { return world.answers == 2; });
  CHECK(world.packs().size() == 1);
}

TEST_CASE("Those who ask during a sync share the next one") {
  World world;
  world.ask();
  const uint32_t first = world.there->await("sync");
  world.ask();
  world.ask();
  world.there->pass(5);
  CHECK_FALSE(world.there->newest.contains("sync"));
  world.there->end(first);
  world.there->until([&] { return world.answers == 1; });
  const uint32_t second = world.there->await("sync");
  CHECK(world.answers == 1);
  world.there->end(second);
  world.there->until([&] { return world.answers == 3; });
}

TEST_CASE("A pack that was cut is asked for again by the same number, also after a restart") {
  World world;
  world.ask();
  uint32_t channel = world.there->await("sync");
  world.there->send(channel, std::string(100'000, 'a'));
  world.there->cut();
  world.there->until([&] { return world.answers == 1; });
  CHECK_FALSE(world.last_error.empty());
  world.open();
  world.ask();
  channel = world.there->await("sync");
  CHECK(world.acknowledged(channel) == 0);
  world.there->send(channel, "whole");
  world.there->end(channel);
  world.there->until([&] { return world.answers == 2; });
  CHECK(base::read_file(world.directory / "incoming/1.pack") == "whole");
  // The daemon has applied it; the number goes on.
  REQUIRE(unlink((world.directory / "incoming/1.pack").c_str()) == 0);
  world.open();
  world.ask();
  CHECK(world.acknowledged(world.there->await("sync")) == 1);
}

TEST_CASE("A pack that cannot be kept fails its sync, and the next one starts afresh") {
  World world;
  REQUIRE(mkdir((world.directory / "incoming/part").c_str(), 0700) == 0);
  world.ask();
  world.there->send(world.there->await("sync"), "bytes");
  world.there->until([&] { return world.answers == 1; });
  CHECK_FALSE(world.last_error.empty());
  REQUIRE(rmdir((world.directory / "incoming/part").c_str()) == 0);
  world.ask();
  const uint32_t channel = world.there->await("sync");
  world.there->send(channel, "bytes");
  world.there->end(channel);
  world.there->until([&] { return world.answers == 2; });
  CHECK(world.last_error.empty());
}

TEST_CASE(
    "A sync that waits there begins by itself or when somebody asks, and serves who asked before") {
  World world;
  world.open(true);
  const auto standing = [&](uint64_t acknowledged) {
    const uint32_t channel = world.there->await("sync");
    CHECK(world.request(channel, "waits").as_bool());
    CHECK(world.acknowledged(channel) == acknowledged);
    CHECK_FALSE(world.intake->busy());
    return channel;
  };
  uint32_t channel = standing(0);
  world.there->send(channel, "bfirst");
  world.there->until([&] { return world.intake->busy(); });
  world.ask();  // too late for it
  world.there->end(channel);
  channel = world.there->await("sync");
  CHECK(base::read_file(world.directory / "incoming/1.pack") == "first");
  CHECK_FALSE(world.request(channel, "waits").as_bool());
  world.there->end(channel);
  world.there->until([&] { return world.answers == 1; });
  channel = standing(1);
  world.ask();
  world.ask();
  world.there->until([&] { return world.there->received[channel] == "b"; });
  world.there->send(channel, "b");
  world.there->end(channel);
  world.there->until([&] { return world.answers == 3; });
  CHECK(world.last_error.empty());
  CHECK(world.packs().size() == 1);
  standing(1);
}

TEST_CASE(
    "A sync that ends before it has begun fails, and nothing is asked for ahead until one "
    "succeeds") {
  World world;
  world.open(true);
  world.ask();
  world.there->end(world.there->await("sync"));
  world.there->until([&] { return world.answers == 1; });
  CHECK(world.last_error.find("had not begun") != std::string::npos);
  world.there->pass(5);
  CHECK_FALSE(world.there->newest.contains("sync"));
  world.ask();
  const uint32_t channel = world.there->await("sync");
  CHECK_FALSE(world.request(channel, "waits").as_bool());
  world.there->end(channel);
  world.there->until([&] { return world.answers == 2; });
  CHECK(world.request(world.there->await("sync"), "waits").as_bool());
}

TEST_CASE("A machine whose packs wait here is asked only for syncs that somebody wants") {
  World world;
  for (size_t number = 1; number <= link::kMaxWaitingPacks; ++number)
    base::write_file(world.directory / ("incoming/" + std::to_string(number) + ".pack"), "pack");
  world.open(true);
  const auto sync = [&world](int answers) {
    world.ask();
    const uint32_t channel = world.there->await("sync");
    CHECK_FALSE(world.request(channel, "waits").as_bool());
    world.there->end(channel);
    world.there->until([&] { return world.answers == answers; });
  };
  sync(1);
  world.there->pass(5);
  CHECK_FALSE(world.there->newest.contains("sync"));
  REQUIRE(unlink((world.directory / "incoming/1.pack").c_str()) == 0);  // as applied
  sync(2);
  CHECK(world.request(world.there->await("sync"), "waits").as_bool());
}

TEST_CASE(
    "A machine that sends without end leaves the reserve of the disk, and no part of a pack") {
  World world;
  const std::string small = world.directory / "small";
  base::make_directories(small);
  REQUIRE(mount("pack", small.c_str(), "tmpfs", 0, "size=16m") == 0);
  {
    link::SyncIntake intake(world.loop, small);
    intake.attach(*world.there->stream);
    std::optional<Error> failure;
    intake.request([&failure](const Error* error) {
      if (error) failure = *error;
    });
    const uint32_t channel = world.there->await("sync");
    const std::string piece(256 << 10, 'x');
    for (int n = 0; n < 200 && world.there->mux.is_open(channel); ++n) {
      if (world.there->mux.room(channel) >= piece.size()) world.there->send(channel, piece);
      world.there->step();
    }
    REQUIRE(failure.has_value());
    CHECK(failure->code() == Code::resource_exhausted);
    CHECK(failure->message().find("nearly full") != std::string::npos);
    CHECK(base::list_directory(small + "/incoming").empty());
    CHECK(base::file_system_space(small).free_bytes > (15U << 20));
    // A small one has room again.
    int answers = 0;
    intake.request([&answers](const Error* error) { answers += error ? 100 : 1; });
    const uint32_t next = world.there->await("sync");
    world.there->send(next, "pack");
    world.there->end(next);
    world.there->until([&answers] { return answers == 1; });
    CHECK(base::read_file(small + "/incoming/1.pack") == "pack");
  }
  REQUIRE(umount(small.c_str()) == 0);
}
