// Merged changes: single rules of the finder and the applier.
#include <atomic>
#include <thread>

#include "base/little_endian.h"
#include "packs/merged_fixture.h"

using namespace moorage;
using namespace moorage::packs;

namespace {

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

TEST_CASE("a piece that arrives in parts is written whole") {
  Target target;
  std::string content(3 << 20, '\0');
  std::mt19937 random(7);
  for (char& byte : content) byte = static_cast<char>(random());
  const std::string pack = pack_of([&](PackWriter& writer) {
    put_file(writer, "tree/one", content);
    Node sparse = node("tree/sparse", NodeType::file);
    sparse.size = 2 * content.size();
    writer.entry(sparse);
    writer.piece(content.size(), content);
    writer.end_pieces();
  });
  apply_to(target.root, pack);
  CHECK((base::read_file(target.top + "/one") == content));
  CHECK((base::read_file(target.top + "/sparse") == std::string(content.size(), '\0') + content));
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
