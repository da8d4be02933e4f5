// Writes a series of delta packs as golden files of this release (tests/packs/golden_test.cc):
//   MOORAGE_GOLDEN_DIRECTORY=.../delta-N test_workspace '[golden-packs]'
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>

#include "layers/storage_fixture.h"
#include "packs/delta_pack.h"
#include "packs/golden.h"
#include "packs/tree_restorer.h"
#include "state_db/tables/seen_tree.h"
#include "workspace/replica/tree_follower.h"

using namespace moorage;
using namespace moorage::layers;
using namespace moorage::packs;
using namespace moorage::workspace;

namespace fs = std::filesystem;

namespace {

class Tree {
 public:
  explicit Tree(std::string top) : top_(std::move(top)) { base::make_directories(top_, 0755); }
  std::string at(const std::string& path) const { return top_ + "/" + path; }

  void own(const std::string& path, uint32_t id = kAgent) const {
    base::check(lchown(at(path).c_str(), kDiskFirstId + id, kDiskFirstId + id), path);
  }
  void date(const std::string& path) const {
    const timespec times[2] = {{1, 1},
                               {1'700'000'000 + static_cast<time_t>(path.size()), 123456789}};
    base::check(utimensat(AT_FDCWD, at(path).c_str(), times, AT_SYMLINK_NOFOLLOW), path);
  }
  void directory(const std::string& path, mode_t mode = 0755) const {
    base::check(mkdir(at(path).c_str(), 0755), path);
    own(path);
    base::check(chmod(at(path).c_str(), mode), path);
  }
  void file(const std::string& path, const std::string& bytes, mode_t mode = 0644) const {
    const base::Fd file = base::open_file(at(path), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    base::write_all(file.get(), bytes);
    own(path);
    base::check(chmod(at(path).c_str(), mode), path);
    date(path);
  }
  void append(const std::string& path, const std::string& bytes) const {
    const base::Fd file = base::open_file(at(path), O_WRONLY | O_APPEND);
    base::write_all(file.get(), bytes);
    date(path);
  }
  void attribute(const std::string& path, const std::string& name, const std::string& value) const {
    base::check(lsetxattr(at(path).c_str(), name.c_str(), value.data(), value.size(), 0), path);
  }
  void node(const std::string& path, mode_t mode) const {
    base::check(mknod(at(path).c_str(), mode, makedev(0, 0)), path);
    own(path);
    if (!S_ISCHR(mode)) date(path);
  }

 private:
  std::string top_;
};

// Every kind of node that a layer can have, with the names and owners that tools get wrong.
void fill(const Tree& tree) {
  tree.own("");
  tree.directory("names");
  for (const std::string name :
       {"a\nb", "\x1b[31mred", "\xff\xfe not utf-8", "-rf", " ", "a\\b", "%41", "...", "\""})
    tree.file("names/" + name, "content of " + name);
  tree.file("names/" + std::string(255, 'n'), "long");
  tree.file("suid", "x", 04755);
  tree.file("unreadable", "x", 0);
  tree.directory("sticky", 03777);
  tree.directory("closed", 0);
  tree.file("closed/in", "in");
  tree.file("linked", "one inode");
  for (const char* path : {"closed/link", "sticky/link"})
    base::check(link(tree.at("linked").c_str(), tree.at(path).c_str()), path);
  base::check(symlink("../\xff elsewhere", tree.at("symlink").c_str()), "symlink");
  tree.own("symlink", 65536);
  tree.date("symlink");
  tree.node("fifo", S_IFIFO | 0620);
  tree.node("socket", S_IFSOCK | 0755);
  tree.node("whiteout", S_IFCHR);
  tree.directory("opaque");
  tree.attribute("opaque", "trusted.overlay.opaque", "y");
  tree.directory("redirected");
  tree.attribute("redirected", "trusted.overlay.redirect", "/before");
  tree.attribute("linked", "user.binary \xff=", std::string("\0\n\xff", 3));
  tree.file("sparse", "");
  base::check(truncate(tree.at("sparse").c_str(), 48 << 20), "truncate");
  {
    const base::Fd sparse = base::open_file(tree.at("sparse"), O_WRONLY);
    base::check(pwrite(sparse.get(), "middle", 6, 32 << 20), "pwrite");
  }
  tree.date("sparse");
  tree.file("log", "the first line\n");
  for (const char* path : {"names", "sticky", "closed", "opaque", "redirected"}) tree.date(path);
}

void change(const Tree& tree) {
  tree.append("log", "the second line\n");
  tree.file("suid", "other bytes", 0644);
  fs::remove_all(tree.at("names/-rf"));
  fs::remove(tree.at("whiteout"));
  tree.file("whiteout", "a file again");
  fs::rename(tree.at("redirected"), tree.at("renamed"));
  fs::remove(tree.at("fifo"));
  tree.directory("fifo");
  tree.file("fifo/in", "a directory now");
  tree.date("fifo");
}

void change_again(const Tree& tree) {
  tree.append("log", std::string(100'000, 'z') + "\n");
  fs::remove_all(tree.at("closed"));
  tree.attribute("linked", "user.added", "later");
}

}  // namespace

TEST_CASE("golden delta packs are written", "[.golden-packs]") {
  const char* target = getenv("MOORAGE_GOLDEN_DIRECTORY");
  REQUIRE(target);
  base::make_directories(target);
  const TemporaryDirectory place;
  const Tree tree(place.path() + "/live");
  FollowedTree followed{{{"tree", tree.at("")}}, {}, {}, {}};
  followed.grows = [](std::string_view path) { return path == "tree/log"; };
  state_db::SeenDatabase seen(place.path());
  TreeRecord record(seen);
  int number = 0;
  for (const auto& step : {fill, change, change_again}) {
    step(tree);
    usleep(2'100'000);  // until no file is in doubt: change times cannot be set
    std::string bytes;
    PackWriter pack([&](std::string_view piece) { bytes += piece; });
    TreeFollower(
        followed, record, [&]() -> PackWriter& { return pack; }, [] {})
        .follow();
    pack.finish();
    base::write_file(std::string(target) + "/" + std::to_string(++number) + ".pack", bytes);
  }
  base::write_file(std::string(target) + "/expected.json",
                   golden_text(golden_nodes("tree", tree.at(""))));
}
