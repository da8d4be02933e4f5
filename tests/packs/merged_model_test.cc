// Random edits of one overlay reach another one by packs of merged changes, byte for byte.
#include <sched.h>
#include <sys/wait.h>

#include <thread>

#include "packs/merged_fixture.h"

using namespace moorage;
using namespace moorage::packs;

namespace {

constexpr int kRounds = 6;
constexpr int kEdits = 25;

struct Stop {};

// Applies it, sometimes stopped half way and begun again, sometimes twice.
void apply_somehow(const MergedRoot& root, const std::string& pack, MergedEditor& dice,
                   MergedApplier::Options options) {
  const size_t way = dice.pick(3);
  if (way == 0) {
    MergedApplier::Options stopped = options;
    stopped.check_stopping = [left = dice.pick(40)]() mutable {
      if (left-- == 0) throw Stop{};
    };
    try {
      apply_to(root, pack, stopped);
    } catch (const Stop&) {
    }
  }
  apply_to(root, pack, options);
  if (way == 1) apply_to(root, pack, options);
}

struct Pair {
  std::string directory;
  bool user_marks = false;
  bool layers = false;  // freeze the first overlay's layers between the rounds
};

// Empty, or how they differ.
std::string follow_edits(const Pair& pair, uint32_t seed) {
  const std::string& top = pair.directory;
  make_base(top + "/base");
  MountedOverlay one(top + "/one", top + "/base", pair.user_marks);
  MountedOverlay other(top + "/other", top + "/base", pair.user_marks);
  MergedEditor editor(one.merged(), seed);
  fs::create_directory(top + "/lists");
  const base::Fd lists = base::open_directory(top + "/lists");
  SentList sent(lists.get(), "one");
  SentList back(lists.get(), "other");
  for (int round = 0; round < kRounds; ++round) {
    editor.edit(kEdits);
    if (pair.layers && editor.pick(2)) one.freeze();
    const FinderOptions options{.roots = {one.root("tree", !pair.layers)}, .marks = one.marks()};
    const FoundPack found = find_with(options, sent);
    const MergedRoot root = other.root("tree");
    MergedApplier::Options applying;
    applying.made = [&](const std::string& path, LearnedEntry entry) {
      back.learn(path, std::move(entry));
    };
    if (!found.bytes.empty()) apply_somehow(root, found.bytes, editor, applying);
    sent.commit();
    const std::string differs = difference(one.merged(), other.merged(), !pair.user_marks);
    if (!differs.empty()) return "round " + std::to_string(round) + ":\n" + differs;
    const FoundPack again = find_with(options, sent);
    sent.commit();
    if (again.changes.any()) return "the same changes were sent twice";
    // The second overlay's own finder may send entries back, but changes nothing by that.
    const FinderOptions backwards{.roots = {root}, .marks = other.marks()};
    const FoundPack echo = find_with(backwards, back);
    back.commit();
    if (!echo.bytes.empty()) apply_to(one.root("tree"), echo.bytes);
    const std::string changed = difference(one.merged(), other.merged(), !pair.user_marks);
    if (!changed.empty())
      return "after the echo of round " + std::to_string(round) + ":\n" + changed;
    find_with(options, sent);
    sent.commit();
    one.close();
    other.close();
  }
  return {};
}

// Runs it as the root of a user namespace; returns its text.
std::string in_user_namespace(const std::string& directory,
                              const std::function<std::string()>& body) {
  constexpr uint32_t kFirst = 1'000'000'000;
  if (chown(directory.c_str(), kFirst, kFirst) < 0) abort();
  base::Pipe ready = base::make_pipe();
  base::Pipe mapped = base::make_pipe();
  base::Pipe text = base::make_pipe();
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0) _exit(1);
    base::write_all(ready.write_end.get(), "r");
    base::read_up_to(mapped.read_end.get(), 1);
    if (setgid(0) < 0 || setuid(0) < 0) _exit(2);
    std::string said;
    try {
      said = body();
    } catch (const std::exception& error) {
      said = error.what();
    }
    base::write_all(text.write_end.get(), "done " + said);
    _exit(0);
  }
  text.write_end.reset();
  base::read_up_to(ready.read_end.get(), 1);
  for (const char* map : {"/uid_map", "/gid_map"}) {
    const base::Fd file = base::open_file("/proc/" + std::to_string(child) + map, O_WRONLY);
    base::write_all(file.get(), "0 1000000000 65536\n");
  }
  base::write_all(mapped.write_end.get(), "m");
  const std::string said = base::read_up_to(text.read_end.get(), 1 << 20);
  int status = 0;
  waitpid(child, &status, 0);
  return said == "done " ? "" : "exit " + std::to_string(status) + " " + said;
}

uint32_t first_seed() {
  const char* const given = getenv("MOORAGE_SEED");
  return given ? static_cast<uint32_t>(strtoul(given, nullptr, 10)) : std::random_device{}();
}

}  // namespace

TEST_CASE("random edits of an overlay arrive in another one, stopped and repeated at random") {
  const uint32_t seed = first_seed();
  for (uint32_t run = 0; run < 4; ++run) {
    TemporaryDirectory directory;
    std::string differs;
    layers::in_own_namespace([&] {
      differs = follow_edits({directory.path(), false, run % 2 == 1}, seed + run);
    });
    INFO("MOORAGE_SEED=" << seed + run << " in run " << run);
    REQUIRE(differs == "");
  }
}

TEST_CASE("random edits arrive between overlays of a user namespace (userxattr)") {
  const uint32_t seed = first_seed();
  for (uint32_t run = 0; run < 3; ++run) {
    TemporaryDirectory directory;
    INFO("MOORAGE_SEED=" << seed + run << " in run " << run);
    REQUIRE(in_user_namespace(directory.path(), [&] {
              return follow_edits({directory.path(), true, run % 2 == 1}, seed + run);
            }) == "");
  }
}
