// What is sent to a machine before its first command, as far as a volume may have it.
#include "link/start_up.h"

#include <boost/json.hpp>
#include <fstream>

#include "base/digest.h"
#include "base/os/files.h"
#include "base/temporary_directory.h"
#include "other_side.h"

using namespace moorage;

namespace {

namespace json = boost::json;

constexpr const char* kPlace = "/mnt/moorage-trees/";

struct World {
  World() {
    base::make_directories(directory / "base", 0755);
    std::ofstream(directory / "base/a.txt") << std::string(200'000, 'a');
    config.name = "moorage-ab12-sb_7";
    config.base = {"k1", directory / "base"};
    config.kept_trees = directory / "notes";
    packer = std::make_unique<link::Packer>(config);
    start();
  }
  // As for another machine.
  void start() {
    start_up.reset();  // both would watch the packer
    start_up = std::make_unique<link::StartUp>(loop, config, *packer);
    there = std::make_unique<test::OtherSide>(loop);
    done = false;
    start_up->send_trees(*there->stream, [this](const Error* error) {
      done = true;
      failure = error ? error->message() : "";
    });
  }
  void answer(uint32_t channel, const json::object& text) {
    there->send(channel, json::serialize(text));
    there->end(channel);
  }
  std::string field(uint32_t channel, const char* of) {
    return json::value_to<std::string>(there->request.at(channel).at(of));
  }
  // Takes the whole pack, and returns it.
  std::string take_pack(uint32_t channel) {
    there->until([&] { return there->ended[channel]; });
    answer(channel, {{"ok", true}});
    there->until([&] { return done; });
    return there->received[channel];
  }
  // Of a first machine, whose push is noted.
  std::string push() {
    answer(there->await("has_tree"), {{"has", false}});
    const uint32_t channel = there->await("put_tree");
    name = field(channel, "keep");
    CHECK(name.starts_with(std::string(kPlace) + "moorage-ab12-sb_7-"));
    return take_pack(channel);
  }
  json::value note() { return json::parse(base::read_file(directory / "notes/k1")); }

  test::TemporaryDirectory directory;
  base::Loop loop;
  base::LinkConfig config;
  std::unique_ptr<link::Packer> packer;
  std::unique_ptr<test::OtherSide> there;
  std::unique_ptr<link::StartUp> start_up;
  std::string name;
  std::string failure;
  bool done = false;
};

}  // namespace

TEST_CASE("a base tree is sent once, and taken from the volume by the next machine") {
  World world;
  const std::string pack = world.push();
  CHECK(world.failure.empty());
  CHECK(world.note().at("digest").as_string() == base::sha256_hex(pack));
  CHECK(world.note().at("bytes").to_number<uint64_t>() == pack.size());
  CHECK(kPlace + json::value_to<std::string>(world.note().at("name")) == world.name);

  world.start();
  world.answer(world.there->await("has_tree"), {{"has", false}});
  const uint32_t channel = world.there->await("take_tree");
  CHECK(world.field(channel, "key") == "k1");
  CHECK(world.field(channel, "file") == world.name);
  CHECK(world.field(channel, "digest") == base::sha256_hex(pack));
  CHECK(world.there->request.at(channel).at("bytes").to_number<uint64_t>() == pack.size());
  world.answer(channel, {{"ok", true}});
  world.there->until([&] { return world.done; });
  CHECK(world.failure.empty());
  CHECK_FALSE(world.there->newest.contains("put_tree"));
}

TEST_CASE("a volume that does not have the base tree costs a push, which is noted instead") {
  World world;
  world.push();
  const std::string before = world.name;
  world.start();
  world.answer(world.there->await("has_tree"), {{"has", false}});
  world.there->mux.reset(world.there->await("take_tree"), Error(Code::corrupted, "was cut"));
  const uint32_t channel = world.there->await("put_tree");
  CHECK(world.field(channel, "keep") != before);
  const std::string name = world.field(channel, "keep");
  const std::string pack = world.take_pack(channel);
  CHECK(world.failure.empty());
  CHECK(kPlace + json::value_to<std::string>(world.note().at("name")) == name);
  CHECK(world.note().at("digest").as_string() == base::sha256_hex(pack));
}

TEST_CASE("a push that goes on after a cut is not kept, and a machine that is gone gets none") {
  World world;
  world.push();
  const json::value note = world.note();
  world.start();
  world.answer(world.there->await("has_tree"), {{"has", false}, {"after", "tree/0"}});
  const uint32_t channel = world.there->await("put_tree");
  CHECK_FALSE(world.there->request.at(channel).contains("keep"));
  world.take_pack(channel);
  CHECK(world.note() == note);

  world.start();
  world.answer(world.there->await("has_tree"), {{"has", false}});
  world.there->await("take_tree");
  world.there->cut();
  world.there->until([&] { return world.done; });
  CHECK_FALSE(world.failure.empty());
}

TEST_CASE("a note that is damaged counts as none, and without a volume nothing is kept") {
  World world;
  world.push();
  base::write_file(world.directory / "notes/k1", "{\"name\":3");
  world.start();
  world.push();
  CHECK(world.failure.empty());

  world.config.kept_trees.clear();
  world.start();
  world.answer(world.there->await("has_tree"), {{"has", false}});
  const uint32_t channel = world.there->await("put_tree");
  CHECK_FALSE(world.there->request.at(channel).contains("keep"));
  world.take_pack(channel);
}

TEST_CASE("notes about base trees that are long gone go") {
  World world;
  world.push();
  for (int number = 0; number < 1005; ++number)
    base::write_file(world.directory / ("notes/old-" + std::to_string(number)), "{}");
  link::note_kept_tree(world.config, {"n", "d", 1});
  const auto names = base::list_directory(world.directory / "notes");
  CHECK(names.size() == 1000);
  CHECK(link::read_kept_tree(world.config)->name == "n");
}
