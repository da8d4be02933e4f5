// Merged changes: single rules of the finder and the applier, and packs of a hostile sender.
#include <atomic>
#include <thread>

#include "base/little_endian.h"
#include "packs/merged/merged_digest.h"
#include "packs/merged_fixture.h"

using namespace moorage;
using namespace moorage::packs;

namespace {

Node node(const std::string& path, NodeType type = NodeType::directory) {
  Node made;
  made.path = path;
  made.type = type;
  made.mode = 0755;
  made.mtime = {1'700'000'000, 7};
  return made;
}

std::string pack_of(const std::function<void(PackWriter&)>& fill) {
  std::string bytes;
  PackWriter writer([&](std::string_view piece) { bytes += piece; });
  fill(writer);
  writer.finish();
  return bytes;
}

void put_file(PackWriter& pack, const std::string& path, const std::string& bytes) {
  Node file = node(path, NodeType::file);
  file.size = bytes.size();
  pack.entry(file);
  pack.piece(0, bytes);
  pack.end_pieces();
}

// A plain directory "top" beside a victim that no pack may reach.
struct Target {
  TemporaryDirectory directory;
  std::string top = directory.path() + "/top";
  base::Fd fd;
  MergedRoot root;

  Target() {
    fs::create_directory(top);
    base::write_file(directory.path() + "/victim", "precious");
    fs::create_directory(top + "/dir");
    base::write_file(top + "/dir/file", "old");
    fs::create_symlink("../..", top + "/out");
    fs::create_symlink(directory.path(), top + "/dir/far");
    fd = base::open_directory(top);
    root.prefix = "tree";
    root.merged = fd.get();
  }
};

std::string refusal(const std::string& pack, const MergedApplier::Options& options = {},
                    InsideOwners owners = {}) {
  Target target;
  target.root.owners = owners;
  std::string said;
  try {
    apply_to(target.root, pack, options);
  } catch (const base::Error& error) {
    CHECK(error.code() == base::Code::corrupted);
    said = error.message();
  }
  CHECK(base::read_file(target.directory.path() + "/victim") == "precious");
  CHECK(base::list_directory(target.directory.path()).size() == 2);
  return said;
}

std::string refusal_of(const Node& entry, const MergedApplier::Options& options = {}) {
  return refusal(pack_of([&](PackWriter& pack) {
                   pack.entry(entry);
                   if (entry.type == NodeType::file) pack.end_pieces();
                 }),
                 options);
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Plain trees.
FoundPack find_plain(const std::string& top, SentList& sent, FinderOptions options = {},
                     InsideOwners owners = {}) {
  const base::Fd fd = base::open_directory(top);
  options.roots = {{"tree", fd.get(), {}, owners}};
  return find_with(options, sent);
}

void fill_plain(const std::string& top, uint32_t seed) {
  fs::create_directory(top);
  make_base(top);
  MergedEditor(top, seed).edit(150);
}

}  // namespace

TEST_CASE("a path that leads out of the tree, or through a link, is refused") {
  const std::string deep = [] {
    std::string path = "tree";
    for (int n = 0; n < 1000; ++n) path += "/d";
    return path;
  }();
  for (const std::string& path :
       {std::string("tree/../victim"), std::string("/etc/x"), std::string("tree//x"),
        std::string("tree/./x"), std::string("tree/"), std::string(""), std::string(".."),
        std::string("other/x"), std::string("tree/out/victim"), std::string("tree/dir/far/victim"),
        std::string("tree/missing/x"), std::string("tree/dir/file/x"),
        "tree/" + std::string(256, 'n'), "tree/" + std::string(1, '\0') + "x", deep,
        "tree/" + std::string(100'000, 'x')}) {
    INFO(base::to_hex(path.substr(0, 40)));
    for (const NodeType type : {NodeType::directory, NodeType::file, NodeType::symlink,
                                NodeType::fifo, NodeType::socket}) {
      Node entry = node(path, type);
      if (type == NodeType::symlink) entry.target = "x";
      CHECK(refusal_of(entry) != "");
    }
    Node link = node("tree/link", NodeType::hard_link);
    link.target = path;
    CHECK(refusal_of(link) != "");
  }
}

TEST_CASE("a removal that leads out of the tree is refused, one of a missing entry does nothing") {
  for (const std::string path : {"tree", "tree/..", "tree/../victim", "", "home/x", "tree/a//b"}) {
    INFO(path);
    CHECK(refusal(pack_of([&](PackWriter& pack) { pack.removal(path); })) != "");
  }
  for (const std::string path : {"tree/missing", "tree/missing/x", "tree/out/victim",
                                 "tree/dir/far/victim", "tree/dir/file/x"}) {
    INFO(path);
    CHECK(refusal(pack_of([&](PackWriter& pack) { pack.removal(path); })) == "");
  }
}

TEST_CASE("devices, other owners, invalid modes, sizes and targets are refused") {
  for (const NodeType type :
       {NodeType::whiteout, NodeType::character_device, NodeType::block_device})
    CHECK(refusal_of(node("tree/x", type)) != "");
  CHECK(has(refusal_of(node("tree/x", NodeType::whiteout)), "device"));
  Node entry = node("tree/x", NodeType::file);
  entry.uid = 65536;
  CHECK(has(refusal_of(entry), "owner"));
  entry.uid = 0xffffffff;
  CHECK(has(refusal_of(entry), "owner"));
  entry.uid = 0;
  entry.mode = 0100644;
  CHECK(has(refusal_of(entry), "mode"));
  entry.mode = 0644;
  entry.size = 1ULL << 63;
  CHECK(has(refusal_of(entry), "size"));
  entry.size = (1ULL << 63) - 1;
  CHECK(refusal_of(entry) != "");  // larger than the file system allows
  for (const std::string& target :
       {std::string(), std::string(5000, 't'), std::string("a\0b", 3)}) {
    Node link = node("tree/x", NodeType::symlink);
    link.target = target;
    CHECK(has(refusal_of(link), "target"));
  }
  CHECK(has(refusal_of(node("tree", NodeType::file)), "top"));
}

TEST_CASE("attributes that no sandbox can set are refused") {
  const std::string host_capability(
      "\x01\x00\x00\x02\x20\x00\x00\x00\x00\x00\x00\x00"
      "\x00\x00\x00\x00\x00\x00\x00\x00",
      20);
  for (const auto& [name, value] :
       std::map<std::string, std::string>{{"trusted.overlay.opaque", "y"},
                                          {"trusted.overlay.redirect", "/etc"},
                                          {"user.overlay.opaque", "y"},
                                          {"user.overlay.whiteout", "y"},
                                          {"security.selinux", "x"},
                                          {"security.capability", host_capability},
                                          {"system.posix_acl_access", "junk"},
                                          {"user.nul" + std::string(1, '\0'), "x"},
                                          {"", "x"}}) {
    for (const NodeType type : {NodeType::file, NodeType::directory, NodeType::symlink}) {
      Node entry = node("tree/x", type);
      entry.target = type == NodeType::symlink ? "t" : "";
      entry.attributes[name] = value;
      INFO(name);
      CHECK(has(refusal_of(entry), "attribute"));
    }
  }
  Node link = node("tree/x", NodeType::symlink);
  link.target = "t";
  link.attributes["user.x"] = "y";
  CHECK(has(refusal_of(link), "attribute"));
}

TEST_CASE("data beyond the size, out of order or without an end is refused") {
  const auto with = [](uint64_t size, const std::vector<std::pair<uint64_t, std::string>>& pieces) {
    return pack_of([&](PackWriter& pack) {
      Node file = node("tree/x", NodeType::file);
      file.size = size;
      pack.entry(file);
      for (const auto& [offset, bytes] : pieces) pack.piece(offset, bytes);
      pack.end_pieces();
    });
  };
  CHECK(has(refusal(with(3, {{0, "four"}})), "exceeds"));
  CHECK(has(refusal(with(3, {{3, "x"}})), "exceeds"));
  CHECK(has(refusal(with(3, {{uint64_t{1} << 62, "x"}})), "exceeds"));
  CHECK(has(refusal(with(9, {{4, "x"}, {0, "y"}})), "order"));
  CHECK(has(refusal(with(9, {{0, "xx"}, {1, "y"}})), "order"));
  CHECK(refusal(with(9, {{0, "x"}, {8, "y"}})) == "");
  CHECK(has(
      refusal(pack_of([](PackWriter& pack) { pack.growth("tree/dir/file"), pack.end_pieces(); })),
      "grow"));
}

TEST_CASE("a pack beyond the limits is refused") {
  MergedApplier::Options options;
  options.limits.entries = 1000;
  CHECK(has(refusal(pack_of([](PackWriter& pack) {
                      for (int n = 0; n < 10'000'000; ++n) pack.removal("tree/nothing");
                    }),
                    options),
            "more than 1000 changes"));
  options.limits.bytes = 100;
  CHECK(has(refusal(pack_of([](PackWriter& pack) {
                      for (int n = 0; n < 3; ++n) put_file(pack, "tree/x", std::string(40, 'x'));
                    }),
                    options),
            "more than 100 bytes"));
  options.limits.depth = 3;
  CHECK(has(
      refusal(pack_of([](PackWriter& pack) {
                for (const std::string path : {"tree/a", "tree/a/b", "tree/a/b/c", "tree/a/b/c/d"})
                  pack.entry(node(path));
              }),
              options),
      "deep"));
  options.allowed = [](std::string_view path) { return path.starts_with("tree/dir"); };
  CHECK(has(refusal_of(node("tree/else"), options), "not allowed"));
}

TEST_CASE("a hard link leads only to an entry of the same tree that exists") {
  Node link = node("tree/link", NodeType::hard_link);
  for (const std::string target : {"tree/missing", "tree/dir", "tree", "tree/out/victim"}) {
    link.target = target;
    CHECK(refusal_of(link) != "");
  }
  link.target = "tree/dir/file";
  CHECK(refusal_of(link) == "");
  link.path = "tree/dir/file";  // to itself
  CHECK(refusal_of(link) == "");
}

TEST_CASE("nothing of a damaged pack is applied, and no damage of a stream is accepted") {
  const std::string good = pack_of([](PackWriter& pack) {
    pack.removal("tree/dir");
    put_file(pack, "tree/new", std::string(50'000, 'n'));
  });
  CHECK(refusal(good) == "");
  for (size_t at = 0; at < good.size(); at += 1 + good.size() / 60) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 0x10);
    Target target;
    try {
      apply_to(target.root, bad);
      FAIL("accepted a flipped bit at " << at);
    } catch (const base::Error& error) {
      CHECK(error.code() == base::Code::corrupted);
    }
    CHECK(base::read_file(target.top + "/dir/file") == "old");
    const MergedApplier::Options options{.roots = {target.root}};
    MergedApplier applier(options);
    CHECK_THROWS_AS(read_pack_stream(from_memory(bad), applier), base::Error);
  }
  for (size_t size = 0; size < good.size(); size += 1 + good.size() / 20) {
    const std::string cut = good.substr(0, size);
    Target target;
    const MergedApplier::Options options{.roots = {target.root}};
    MergedApplier applier(options);
    CHECK_THROWS_AS(read_pack_stream(from_memory(cut), applier), base::Error);
  }
}

TEST_CASE("directories and files replace each other, also a directory that nobody may write") {
  Target target;
  fs::create_directories(target.top + "/closed/below");
  fs::permissions(target.top + "/closed", fs::perms::none);
  apply_to(target.root, pack_of([](PackWriter& pack) {
             put_file(pack, "tree/dir", "now a file");
             put_file(pack, "tree/closed/below", "inside");
             pack.entry(node("tree/out"));
             put_file(pack, "tree/out/x", "x");
           }));
  CHECK(base::read_file(target.top + "/dir") == "now a file");
  CHECK(base::read_file(target.top + "/closed/below") == "inside");
  CHECK(fs::status(target.top + "/closed").permissions() == fs::perms::none);
  CHECK(fs::is_directory(fs::symlink_status(target.top + "/out")));
  const std::string back = pack_of([](PackWriter& pack) {
    pack.entry(node("tree/dir"));
    Node link = node("tree/out", NodeType::symlink);
    link.target = "elsewhere";
    pack.entry(link);
  });
  apply_to(target.root, back);
  apply_to(target.root, back);
  CHECK(fs::is_directory(target.top + "/dir"));
  CHECK(fs::read_symlink(target.top + "/out") == "elsewhere");
}

TEST_CASE("a plain tree arrives in another owner range, with setuid bits, and comes back") {
  TemporaryDirectory directory;
  const uint32_t seed = std::random_device{}();
  INFO("seed " << seed);
  fill_plain(directory.path() + "/one", seed);
  base::write_file(directory.path() + "/one/setuid", "x", 0755);
  REQUIRE(chmod((directory.path() + "/one/setuid").c_str(), 06755) == 0);
  // The capability names the root of the sandbox's user namespace.
  const std::string capability(
      "\x01\x00\x00\x03\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
      "\x00",
      24);
  const InsideOwners shifted{1'000'000'000, 65536, {}};
  SentList none;
  const FoundPack there = find_plain(directory.path() + "/one", none);
  fs::create_directory(directory.path() + "/two");
  const base::Fd two = base::open_directory(directory.path() + "/two");
  apply_to({"tree", two.get(), {}, shifted}, there.bytes);
  std::string shifted_capability = capability;
  base::put_number(shifted_capability.data() + 20, uint32_t{1'000'000'000});
  REQUIRE(setxattr((directory.path() + "/two/setuid").c_str(), "security.capability",
                   shifted_capability.data(), shifted_capability.size(), 0) == 0);
  SentList none_back;
  const FoundPack back = find_plain(directory.path() + "/two", none_back, {}, shifted);
  CHECK(back.changes.skipped == there.changes.skipped);
  fs::create_directory(directory.path() + "/three");
  const base::Fd three = base::open_directory(directory.path() + "/three");
  apply_to({"tree", three.get(), {}, {}}, back.bytes);
  struct stat status {};
  REQUIRE(stat((directory.path() + "/two/setuid").c_str(), &status) == 0);
  CHECK(status.st_uid == 1'000'000'000);
  CHECK((status.st_mode & 07777) == 06755);
  REQUIRE(removexattr((directory.path() + "/three/setuid").c_str(), "security.capability") == 0);
  CHECK(difference(directory.path() + "/one", directory.path() + "/three") == "");
}

TEST_CASE("where other owners do not exist, everything belongs to the one there is") {
  Target target;
  target.root.owners = {0, 65536, 1000};
  apply_to(target.root, pack_of([](PackWriter& pack) {
             Node file = node("tree/x", NodeType::file);
             file.uid = 33;
             file.mode = 06755;
             pack.entry(file);
             pack.end_pieces();
           }));
  struct stat status {};
  REQUIRE(stat((target.top + "/x").c_str(), &status) == 0);
  CHECK(status.st_uid == geteuid());
  CHECK((status.st_mode & 07777) == 0755);
  SentList none;
  const FoundPack found = find_plain(target.top, none, {}, {0, 65536, 1000});
  struct Owners : PackVisitor {
    void entry(const Node& entry) override { CHECK((entry.uid == 1000 && entry.gid == 1000)); }
    void growth(const std::string&) override {}
    void piece(uint64_t, std::string_view) override {}
    void end_pieces() override {}
    void removal(const std::string&) override {}
  } owners;
  PackReader(file_with(found.bytes)).read_changes(owners);
}

TEST_CASE("a tree sent in a stream that breaks continues after the last entry that arrived") {
  TemporaryDirectory directory;
  const uint32_t seed = std::random_device{}();
  INFO("seed " << seed);
  fill_plain(directory.path() + "/one", seed);
  fs::create_directory(directory.path() + "/two");
  const base::Fd two = base::open_directory(directory.path() + "/two");
  const MergedRoot root{"tree", two.get(), {}, {}};
  std::string after;
  for (int tries = 0; tries < 1000; ++tries) {
    FinderOptions finding;
    finding.after = after;
    finding.passes = 1;
    SentList none;
    const FoundPack found = find_plain(directory.path() + "/one", none, finding);
    MergedApplier::Options options{.roots = {root}};
    options.check_stopping = [left = 17]() mutable {
      if (left-- == 0) throw std::runtime_error("the stream broke");
    };
    MergedApplier applier(options);
    try {
      if (!found.bytes.empty()) read_pack_stream(from_memory(found.bytes), applier);
      applier.finish();
      break;
    } catch (const std::runtime_error&) {
      if (compare_in_walk(applier.last(), after) > 0) after = applier.last();
    }
    REQUIRE(tries < 999);
  }
  // Links to entries of an earlier stream are links too: the finder saw both names.
  CHECK(difference(directory.path() + "/one", directory.path() + "/two") == "");
}

TEST_CASE("single paths are sent as they are now, with the directories above them") {
  TemporaryDirectory directory;
  const std::string one = directory.path() + "/one";
  fs::create_directories(one + "/a/b/c");
  base::write_file(one + "/a/b/c/file", "text");
  fs::create_directory(directory.path() + "/two");
  base::write_file(directory.path() + "/two/gone", "x");
  const base::Fd fd = base::open_directory(one);
  const FinderOptions options{.roots = {{"tree", fd.get(), {}, {}}}};
  SentList none;
  MergedFinder finder(options, none);
  const std::string pack = pack_of([&](PackWriter& writer) {
    finder.find_paths({"tree/a/b", "tree/gone", "tree/no/such"},
                      [&]() -> PackWriter& { return writer; });
  });
  const base::Fd two = base::open_directory(directory.path() + "/two");
  apply_to({"tree", two.get(), {}, {}}, pack);
  CHECK(difference(one, directory.path() + "/two") == "");
  CHECK_THROWS_AS(finder.find_paths({"etc/passwd"}, {}), base::Error);
}

TEST_CASE("a tree under writers is complete once they stop") {
  TemporaryDirectory directory;
  const std::string top = directory.path();
  const uint32_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::string differs;
  layers::in_own_namespace([&] {
    make_base(top + "/base");
    MountedOverlay one(top + "/one", top + "/base", false);
    MountedOverlay other(top + "/other", top + "/base", false);
    fs::create_directory(top + "/lists");
    const base::Fd lists = base::open_directory(top + "/lists");
    SentList sent(lists.get(), "one");
    const FinderOptions options{.roots = {one.root("tree")}};
    const MergedRoot root = other.root("tree");
    std::atomic<bool> over{false};
    std::atomic<int> edits{0};
    std::thread writer([&] {
      MergedEditor editor(one.merged(), seed);
      while (!over) editor.edit(1), ++edits;
    });
    try {
      for (int round = 0; round < 40 || edits < 500; ++round) {
        const FoundPack found = find_with(options, sent);
        if (!found.bytes.empty()) apply_to(root, found.bytes);
        sent.commit();
      }
    } catch (const std::exception& error) {
      differs = error.what();
    }
    over = true;
    writer.join();
    const FoundPack last = find_with(options, sent);
    if (!last.bytes.empty()) apply_to(root, last.bytes);
    if (differs.empty()) differs = difference(one.merged(), other.merged());
    one.close();
    other.close();
  });
  CHECK(differs == "");
}

TEST_CASE("a file mapped for writing is read again in each round, and sent if it differs") {
  TemporaryDirectory directory;
  const std::string top = directory.path() + "/one";
  fs::create_directory(top);
  base::write_file(top + "/mapped", std::string(4096, 'a'));
  fs::create_directory(directory.path() + "/lists");
  const base::Fd lists = base::open_directory(directory.path() + "/lists");
  SentList sent(lists.get(), "list");
  struct stat status {};
  REQUIRE(stat((top + "/mapped").c_str(), &status) == 0);
  FinderOptions options;
  options.mapped = {status.st_ino};
  CHECK(find_plain(top, sent, options).changes.entries == 2);
  sent.commit();
  CHECK(!find_plain(top, sent, options).changes.any());
  sent.commit();
  // As a mapping would: contents without a new time.
  const base::Fd file = base::open_file(top + "/mapped", O_RDWR);
  void* const memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  REQUIRE(memory != MAP_FAILED);
  static_cast<char*>(memory)[0] = 'b';
  CHECK(find_plain(top, sent, options).changes.any());
  sent.commit();
  munmap(memory, 4096);
}

TEST_CASE("the list survives a restart, an uncommitted round is found again") {
  TemporaryDirectory directory;
  const std::string top = directory.path() + "/one";
  fill_plain(top, 5);
  fs::create_directory(directory.path() + "/lists");
  const base::Fd lists = base::open_directory(directory.path() + "/lists");
  {
    SentList sent(lists.get(), "list");
    CHECK(!sent.exists());
    CHECK(find_plain(top, sent).changes.any());
    CHECK(!sent.exists());
  }
  {
    SentList sent(lists.get(), "list");
    CHECK(find_plain(top, sent).changes.any());
    sent.commit();
    CHECK(sent.exists());
  }
  {
    SentList sent(lists.get(), "list");
    CHECK(!find_plain(top, sent).changes.any());
    base::write_file(top + "/new", "new");
    CHECK(find_plain(top, sent).changes.any());
    CHECK(find_plain(top, sent).changes.any());
    sent.commit();
    CHECK(!find_plain(top, sent).changes.any());
  }
  base::write_file(directory.path() + "/lists/list", std::string("tree\0nonsense\n", 14));
  SentList sent(lists.get(), "list");
  CHECK_THROWS_AS(find_plain(top, sent), base::Error);
  sent.remove();
  CHECK(base::list_directory(directory.path() + "/lists").empty());
}

TEST_CASE("paths compare in the order of the walk") {
  CHECK(compare_in_walk("a", "a/b") < 0);
  CHECK(compare_in_walk("a/b", "a.b") < 0);  // "a" before "a.b"
  CHECK(compare_in_walk("a/zz", "a/objects") < 0);
  CHECK(compare_in_walk("a/objects/x", "a/zz") > 0);
  CHECK(compare_in_walk("a/objects", "a/objects") == 0);
  CHECK(compare_in_walk("b", "a/objects") > 0);
}
