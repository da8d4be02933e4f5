// Notes on disk, and a store that is listed and saved by them alone.
#include "workspace/recovery/rescue.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>

#include "packs/tar_fixture.h"
#include "thrown_code.h"

namespace moorage::workspace {
namespace {

About about(int64_t id, const std::string& name, std::vector<base::LayerId> layers) {
  About about;
  about.id = {id};
  about.store = "0a1b2c3d";
  about.name = name;
  about.owner_uid = 1004;
  about.repository = {1};
  about.repo_name = "acme/shop";
  about.repo_url = "https://host/acme/shop";
  about.base_ref = "refs/heads/\xff main";
  about.base_commit = std::string(40, 'a');
  about.branch = "moorage/" + name;
  about.layers = std::move(layers);
  about.created_wall_ms = 1'700'000'000'123;
  return about;
}

struct RescueStore : layers::TemporaryDirectory {
  RescueStore() { std::signal(SIGPIPE, SIG_IGN); }  // as in the daemon

  Rescue rescue{{path(), path() + "/archive", layers::kDiskFirstId}};

  void note(const About& one) const {
    base::make_directories(path() + "/workspaces/" + one.id.str());
    base::write_file(about_path(path(), one.id), write_about_text(one));
  }
  void layer(const std::string& id, const std::string& file, const std::string& bytes) const {
    const std::string upper = path() + "/layers/" + id + "/tree/upper";
    base::make_directories(upper);
    base::write_file(upper + "/" + file, bytes);
    for (const auto& place : {upper, upper + "/" + file})
      REQUIRE(chown(place.c_str(), layers::kDiskFirstId + layers::kAgent,
                    layers::kDiskFirstId + layers::kAgent) == 0);
  }
  std::map<std::string, std::string> exported(const std::string& name) {
    const auto pipe = rescue.begin_export(name);
    std::string bytes;
    for (;;) {
      const std::string piece = pipe->read(64 << 10);
      if (piece.empty()) break;
      bytes += piece;
    }
    std::map<std::string, std::string> files;
    packs::ArchiveReader reader(packs::from_memory(bytes), {});
    while (const packs::ArchiveEntry* entry = reader.next()) {
      const std::string path = entry->path;
      std::string& content = files[path];
      for (packs::ArchiveReader::Piece piece; reader.read(piece);) content += piece.bytes;
    }
    return files;
  }
};

}  // namespace

TEST_CASE("a note survives a round trip, and a torn one is rejected") {
  About one = about(3, "auth", {{7}, {5}});
  one.team_gid = 60;
  const std::string text = write_about_text(one);
  const auto read = parse_about(text);
  REQUIRE(read.has_value());
  CHECK(write_about_text(*read) == text);
  CHECK(read->base_ref == one.base_ref);
  CHECK(read->layers == one.layers);
  CHECK(read->team_gid == one.team_gid);
  for (size_t size = 0; size + 2 < text.size(); ++size)
    CHECK_FALSE(parse_about(text.substr(0, size)).has_value());
  CHECK_FALSE(parse_about(std::string(text.size(), '\0')).has_value());
  CHECK_FALSE(parse_about("[1]").has_value());
}

TEST_CASE("workspaces are listed by their notes, and unnamed layers by themselves") {
  RescueStore store;
  store.note(about(1, "auth", {{7}, {5}}));
  store.note(about(2, "gone", {{9}}));
  base::make_directories(store.path() + "/workspaces/ws_3");
  base::write_file(store.path() + "/workspaces/ws_3/about.json", "{\"id\":");
  base::make_directories(store.path() + "/workspaces/not-ours");
  for (const char* layer : {"ly_5", "ly_7", "ly_8"}) store.layer(layer, "file", "x\n");

  const auto found = store.rescue.list();
  REQUIRE(found.size() == 4);
  CHECK(found[0].id == "ws_1");
  CHECK(found[0].layers == std::vector<base::LayerId>{{7}, {5}});
  CHECK(found[0].lost_layers.empty());
  CHECK(found[0].bytes.value_or(0) > 0);
  CHECK(found[1].id == "ws_2");
  CHECK(found[1].lost_layers == std::vector<base::LayerId>{{9}});
  CHECK(found[2].id == "ws_3");
  CHECK_FALSE(found[2].about.has_value());
  CHECK(found[3].id == "ly_8");
  CHECK(store.rescue.count() == 4);
}

TEST_CASE("a workspace is found by its id or by a unique name") {
  RescueStore store;
  store.note(about(1, "auth", {{1}}));
  store.note(about(2, "auth", {{2}}));
  store.note(about(3, "other", {{3}}));
  CHECK(store.rescue.find("ws_2").id == "ws_2");
  CHECK(store.rescue.find("other").id == "ws_3");
  CHECK(code_thrown_by([&] { store.rescue.find("auth"); }) == base::Code::conflict);
  CHECK(code_thrown_by([&] { store.rescue.find("../../etc"); }) == base::Code::not_found);
}

TEST_CASE("an export contains the note, the journals and every layer") {
  RescueStore store;
  store.note(about(1, "auth", {{7}, {5}}));
  store.layer("ly_7", "new", "of today\n");
  store.layer("ly_5", "old", "of yesterday\n");
  store.layer("ly_6", "other", "another's\n");
  const std::string journal = store.path() + "/workspaces/ws_1/journal/ex_3";
  base::make_directories(journal);
  base::write_file(journal + "/output", "what it said");

  const auto files = store.exported("auth");
  CHECK(files.at("layers/ly_7/tree/new") == "of today\n");
  CHECK(files.at("layers/ly_5/tree/old") == "of yesterday\n");
  CHECK(files.at("journal/ex_3/output") == "what it said");
  CHECK(parse_about(files.at("about.json")).has_value());
  CHECK(files.count("layers/ly_6/tree/other") == 0);
  CHECK(store.exported("ly_6").at("layers/ly_6/tree/other") == "another's\n");
}

TEST_CASE("an archived workspace is listed by its archive and saved as that file") {
  RescueStore store;
  store.note(about(1, "auth", {{7}}));
  base::make_directories(store.path() + "/archive");
  // From another store, of another workspace, older, unfinished, and not archives.
  for (const char* name : {"moorage-ffffffff-ws_1.9.tar.zst", "moorage-0a1b2c3d-ws_11.9.tar.zst",
                           "moorage-0a1b2c3d-ws_1.2.tar.zst", "moorage-0a1b2c3d-ws_1.4.tar.zst.tmp",
                           "moorage-0a1b2c3d-ws_1.+5.tar.zst", "moorage-0a1b2c3d-ws_1..tar.zst"})
    base::write_file(store.path() + "/archive/" + name, name);
  const std::string newest = store.path() + "/archive/moorage-0a1b2c3d-ws_1.3.tar.zst";
  base::write_file(newest, "all of it");

  const auto found = store.rescue.list();
  REQUIRE(found.size() == 1);
  CHECK(found[0].archive == newest);
  CHECK(found[0].lost_layers.empty());
  CHECK(found[0].bytes.value_or(0) > 0);
  CHECK(store.rescue.begin_export("auth")->read(1 << 20) == "all of it");
}

TEST_CASE("an export leaves out and names entries that an archive cannot hold") {
  RescueStore store;
  store.note(about(1, "auth", {{7}}));
  store.layer("ly_7", "good", "work\n");
  const std::string upper = store.path() + "/layers/ly_7/tree/upper";
  base::write_file(upper + "/root's", "x");
  REQUIRE(link((upper + "/root's").c_str(), (upper + "/root's too").c_str()) == 0);
  REQUIRE(mknod((upper + "/device").c_str(), S_IFCHR | 0600, makedev(1, 3)) == 0);
  std::string deep = upper + "/deep";
  for (unsigned i = 0; i <= packs::kMaxArchiveDepth; ++i) {
    REQUIRE(mkdir(deep.c_str(), 0755) == 0);
    REQUIRE(chown(deep.c_str(), layers::kDiskFirstId, layers::kDiskFirstId) == 0);
    deep += "/d";
  }
  store.layer("ly_7", "later", "work, too\n");

  const auto files = store.exported("auth");
  CHECK(files.at("layers/ly_7/tree/good") == "work\n");
  CHECK(files.at("layers/ly_7/tree/later") == "work, too\n");
  CHECK(files.contains("layers/ly_7/tree/deep/d/d"));
  CHECK(files.count("layers/ly_7/tree/device") == 0);
  CHECK(files.count("layers/ly_7/tree/root's") == 0);
  CHECK(files.count("layers/ly_7/tree/root's too") == 0);
  const std::string& missing = files.at("missing.txt");
  CHECK(std::count(missing.begin(), missing.end(), '\n') == 4);
  CHECK_THAT(missing, Catch::Contains("layers/ly_7/tree/device is a device"));
  CHECK_THAT(missing, Catch::Contains("layers/ly_7/tree/root's too has owner or group 0"));
  CHECK_THAT(missing, Catch::Contains("is nested deeper than 900 directories"));
}

TEST_CASE("an export names exactly the renamed directories that it could not merge") {
  RescueStore store;
  store.note(about(1, "auth", {{7}, {5}}));
  store.layer("ly_7", "good", "work\n");
  const std::string new_upper = store.path() + "/layers/ly_7/tree/upper/";
  const std::string old_upper = store.path() + "/layers/ly_5/tree/upper/";
  const auto make = [](const std::string& path) {
    base::make_directories(path);
    REQUIRE(chown(path.c_str(), layers::kDiskFirstId, layers::kDiskFirstId) == 0);
  };
  const auto renamed = [&](const std::string& name) {
    make(new_upper + name);
    const std::string from = "/old-" + name;
    REQUIRE(setxattr((new_upper + name).c_str(), "trusted.overlay.redirect", from.data(),
                     from.size(), 0) == 0);
    make(old_upper + from);
    make(old_upper + from + "/in");
    for (const char* file : {"/file", "/in/file"})
      store.layer("ly_5", "old-" + name + file, "of " + name + "\n");
  };
  make(old_upper);
  make(new_upper);
  for (const char* name : {"a", "b", "c"}) renamed(name);
  // `b` also has a path longer than a merge follows.
  base::Fd at = base::open_directory(old_upper + "old-b/in");
  for (int depth = 0; depth < 17; ++depth) {
    const std::string name(250, 'd');
    REQUIRE(mkdirat(at.get(), name.c_str(), 0755) == 0);
    REQUIRE(fchownat(at.get(), name.c_str(), layers::kDiskFirstId, layers::kDiskFirstId, 0) == 0);
    at = base::Fd(openat(at.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }

  const auto files = store.exported("auth");
  for (const std::string name : {"a", "b", "c"}) {
    CHECK(files.at("layers/ly_7/tree/" + name + "/file") == "of " + name + "\n");
    CHECK(files.at("layers/ly_7/tree/" + name + "/in/file") == "of " + name + "\n");
  }
  const std::string& missing = files.at("missing.txt");
  INFO(missing);
  CHECK(std::count(missing.begin(), missing.end(), '\n') == 1);
  CHECK_THAT(missing, Catch::StartsWith("layers/ly_7/tree/b/in/ddd"));
  CHECK_THAT(missing, Catch::EndsWith("is a renamed directory with too many entries to merge\n"));
}

TEST_CASE("an export has zeros for the unreadable part of a file, and names it") {
  RescueStore store;
  store.note(about(1, "auth", {{7}}));
  store.layer("ly_7", "file", "x\n");
  const std::string journal = store.path() + "/workspaces/ws_1/journal/ex_3";
  base::make_directories(journal);
  base::write_file(journal + "/start", "");
  // Smaller than its size, like every file of sysfs.
  const char* small = "/sys/kernel/uevent_seqnum";
  REQUIRE(mount(small, (journal + "/start").c_str(), nullptr, MS_BIND, nullptr) == 0);
  const auto files = store.exported("auth");
  REQUIRE(umount2((journal + "/start").c_str(), MNT_DETACH) == 0);

  const std::string start = files.at("journal/ex_3/start");
  CHECK(start.size() == 4096);
  CHECK(start.ends_with(std::string(4000, '\0')));
  CHECK(files.at("layers/ly_7/tree/file") == "x\n");
  CHECK_THAT(files.at("missing.txt"), Catch::StartsWith("journal/ex_3/start became shorter"));
}

TEST_CASE("an export goes on without journals that cannot be listed") {
  RescueStore store;
  store.note(about(1, "auth", {{7}}));
  store.layer("ly_7", "file", "work\n");
  base::write_file(store.path() + "/workspaces/ws_1/journal", "not a directory");
  const auto files = store.exported("auth");
  CHECK(files.at("layers/ly_7/tree/file") == "work\n");
  CHECK_THAT(files.at("missing.txt"), Catch::StartsWith("journal: "));
}

TEST_CASE("an export goes on without a base tree that cannot be opened") {
  RescueStore store;
  const About one = about(1, "auth", {{7}});
  store.note(one);
  store.layer("ly_7", "file", "work\n");
  const std::string trees = store.path() + "/repos/" + one.repository.str() + "/trees/";
  base::make_directories(trees + one.base_commit);
  base::write_file(trees + one.base_commit + "/tree", "not a directory");
  const auto files = store.exported("auth");
  CHECK(files.at("layers/ly_7/tree/file") == "work\n");
  CHECK_THAT(files.at("missing.txt"), Catch::StartsWith("layers/ly_7/tree: "));
}

TEST_CASE("an entry that cannot be exported from a renamed directory keeps no other out") {
  RescueStore store;
  store.note(about(1, "auth", {{7}}));
  const std::string moved = store.path() + "/layers/ly_7/tree/upper/moved";
  base::make_directories(moved);
  REQUIRE(chown(moved.c_str(), layers::kDiskFirstId + layers::kAgent,
                layers::kDiskFirstId + layers::kAgent) == 0);
  REQUIRE(setxattr(moved.c_str(), "trusted.overlay.redirect", "old", 3, 0) == 0);
  store.layer("ly_7", "moved/after", "work\n");
  store.layer("ly_7", "moved/zero", "too\n");
  REQUIRE(mkdir((moved + "/middle").c_str(), 0755) == 0);  // owned by root
  const auto files = store.exported("auth");
  CHECK(files.at("layers/ly_7/tree/moved/after") == "work\n");
  CHECK(files.at("layers/ly_7/tree/moved/zero") == "too\n");
  CHECK(files.count("layers/ly_7/tree/moved/middle") == 0);
  CHECK_THAT(files.at("missing.txt"),
             Catch::StartsWith("layers/ly_7/tree/moved/middle has owner or group 0"));
}

TEST_CASE("a reader who leaves ends the export") {
  RescueStore store;
  store.note(about(1, "auth", {{7}}));
  store.layer("ly_7", "large", std::string(8 << 20, 'x'));
  store.rescue.begin_export("auth")->leave();
  CHECK(store.exported("auth").at("layers/ly_7/tree/large").size() == 8 << 20);
}

}  // namespace moorage::workspace
