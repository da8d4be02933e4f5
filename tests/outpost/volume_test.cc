// Packs of trees in a volume that others write, too: here a directory.
#include <sys/stat.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <catch2/catch.hpp>
#include <filesystem>

#include "base/digest.h"
#include "base/os/files.h"
#include "base/temporary_directory.h"
#include "machine.h"

using namespace moorage;
using namespace moorage::test;

namespace {

std::string tree_pack() {
  return PackText().directory("tree").file("tree/a.txt", std::string(100'000, 'a')).finish();
}

class Volume {
 public:
  explicit Volume(uid_t user) { REQUIRE(chown(directory_.path().c_str(), user, user) == 0); }
  std::string file(const std::string& name) const { return directory_ / name; }

 private:
  TemporaryDirectory directory_;
};

json::object put(const std::string& key, const std::string& keep) {
  return {{"what", "put_tree"}, {"key", key}, {"more", false}, {"keep", keep}};
}

json::object take(const std::string& key, const std::string& file, const std::string& pack) {
  return {{"what", "take_tree"},
          {"key", key},
          {"file", file},
          {"digest", base::sha256_hex(pack)},
          {"bytes", pack.size()}};
}

bool has(Link& link, const std::string& key) {
  return link.call({{"what", "has_tree"}, {"key", key}}).at("has").as_bool();
}

}  // namespace

TEST_CASE("a pack that arrives is kept in a volume, and the next machine takes the tree from it") {
  const uid_t user = GENERATE(kRoot, kNobody);
  const Volume volume(user);
  const std::string pack = tree_pack();
  const std::string file = volume.file("first");
  {
    const Machine machine(user);
    Link link(machine);
    link.hello();
    link.call_with(put("k", file), pack);
    CHECK(eventually([&] { return base::read_file_if_exists(file) == pack; }));
  }
  const Machine machine(user);
  Link link(machine);
  link.hello();
  CHECK(link.call(take("k", file, pack)).at("ok").as_bool());
  CHECK(has(link, "k"));
  CHECK(link.call(take("k", file, pack)).at("ok").as_bool());
  link.prepare_and_start("k");
  CHECK(link.run("ex_1", "wc -c <a.txt") == "100000\n");
}

TEST_CASE("nothing is used of a file in a volume that is not what was written there") {
  const Machine machine(kNobody);
  const Volume volume(kNobody);
  const std::string pack = tree_pack();
  const std::string file = volume.file("file");
  const std::string how =
      GENERATE("missing", "cut", "longer", "changed", "empty", "pipe", "link", "directory");
  CAPTURE(how);
  std::string contents = pack;
  if (how == "cut") contents.resize(contents.size() / 2);
  if (how == "longer") contents += "x";
  if (how == "changed") contents[contents.size() / 2] ^= 1;
  if (how == "empty") contents.clear();
  if (how == "pipe") {
    REQUIRE(mkfifo(file.c_str(), 0666) == 0);
  } else if (how == "link") {
    base::write_file(volume.file("other"), pack, 0644);
    REQUIRE(symlink("other", file.c_str()) == 0);
  } else if (how == "directory") {
    std::filesystem::create_directory(file);
  } else if (how != "missing") {
    base::write_file(file, contents, 0644);
  }
  Link link(machine);
  link.hello();
  CHECK_THROWS_AS(link.call(take("k", file, pack)), Error);
  CHECK_FALSE(has(link, "k"));
  CHECK(base::list_directory(machine.directory() + "/trees").empty());
  // Only one that will never be right is removed.
  CHECK(base::path_exists(file) == (how != "missing" && how != "changed"));

  link.call_with(put("k", volume.file("next")), pack);
  link.prepare_and_start("k");
  CHECK(link.run("ex_1", "wc -c <a.txt") == "100000\n");
}

TEST_CASE("a tree arrives also if its pack cannot be kept, and no file is written over") {
  const Machine machine(kNobody);
  const Volume volume(kNobody);
  const std::string pack = tree_pack();
  base::write_file(volume.file("taken"), "of others", 0666);
  Link link(machine);
  link.hello();
  for (const std::string& name : {std::string("taken"), std::string("none/file")}) {
    link.call_with(put("k-" + name.substr(0, 4), volume.file(name)), pack);
    CHECK(has(link, "k-" + name.substr(0, 4)));
  }
  const auto log = [&] { return base::read_file(machine.sandbox() + "/serve.log"); };
  CHECK(eventually([&] {
    return log().find("cannot keep a copy of the tree k-take") != std::string::npos &&
           log().find("cannot keep a copy of the tree k-none") != std::string::npos;
  }));
  CHECK(base::read_file(volume.file("taken")) == "of others");
}

TEST_CASE("a pack that was cut is not kept") {
  const Machine machine(kNobody);
  const Volume volume(kNobody);
  const std::string pack = tree_pack();
  {
    Link link(machine);
    link.hello();
    const uint32_t channel = link.open(put("k", volume.file("cut")));
    link.send(channel, std::string_view(pack).substr(0, pack.size() / 2));
    link.end(channel);
    CHECK_THROWS_AS(link.finish(channel), Error);
  }
  Link link(machine);
  link.hello();
  link.call_with(put("k", volume.file("whole")), pack);
  CHECK(eventually([&] { return base::read_file_if_exists(volume.file("whole")) == pack; }));
  CHECK_FALSE(base::path_exists(volume.file("cut")));
}
