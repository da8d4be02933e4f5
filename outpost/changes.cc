#include "outpost/changes.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <cerrno>
#include <charconv>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/little_endian.h"
#include "base/os/files.h"
#include "base/os/open_beneath.h"
#include "base/os/process.h"
#include "layers/mapped_files.h"
#include "outpost/inside/process_tree.h"
#include "outpost/trees.h"
#include "packs/merged/applier.h"
#include "packs/merged/finder.h"

namespace moorage::outpost {
namespace {

namespace json = boost::json;

constexpr const char* kBase = "base";
constexpr const char* kNext = "next";
constexpr const char* kCheck = "check";
constexpr const char* kQuiet = "quiet";
constexpr size_t kMaxSpoolNames = 16 << 20;
constexpr size_t kMaxLosses = 10'000;  // more: the machine is given up
constexpr uint64_t kMaxLearnedBytes = 1ULL << 30;

int64_t wall_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

// The directory of a sandbox and its parts, opened before their paths are out of sight.
struct Places {
  Places(const std::string& sandbox, const ProcessOne& one)
      : top((enter_owners_namespace(one), base::open_directory(sandbox))),
        spool(base::open_directory(sandbox + "/spool")),
        sent(base::open_directory(sandbox + "/said")),
        learned(base::open_directory(sandbox + "/learned")) {
    if (one.overlay == OverlayKind::none) return;
    tree_upper = base::open_directory(sandbox + "/tree/upper");
    home_upper = base::open_directory(sandbox + "/home/upper");
  }
  Fd top;
  Fd spool;
  Fd sent;
  Fd learned;
  Fd tree_upper;
  Fd home_upper;
  Fd tree;  // merged; after enter()
  Fd home;

  std::vector<packs::MergedRoot> enter(const ProcessOne& one) {
    enter_mounts(one);
    tree = base::open_directory("/workspace");
    home = base::open_directory("/home/user");
    const packs::InsideOwners owners = owners_inside(one.overlay);
    std::vector<packs::MergedRoot> roots{{"tree", tree.get(), {}, owners},
                                         {"home", home.get(), {}, owners}};
    if (tree_upper) roots[0].uppers = {tree_upper.get()};
    if (home_upper) roots[1].uppers = {home_upper.get()};
    return roots;
  }
};

layers::OverlayMarks marks_of(const ProcessOne& one) {
  return one.overlay == OverlayKind::root ? layers::OverlayMarks::trusted
                                          : layers::OverlayMarks::user;
}

struct SyncState {
  uint64_t base = 0;          // of the last acknowledged pack
  bool sent_next = false;     // base+1 was made
  uint64_t next_learned = 0;  // packs of link up to this one were known to that round
};

SyncState read_state(int sandbox) {
  const Fd file = base::try_open_beneath(sandbox, "sync.json", O_RDONLY);
  if (!file) return {};
  const json::value value = json::parse(base::read_up_to(file.get(), 4096));
  return {value.at("base").to_number<uint64_t>(), value.at("sent_next").as_bool(),
          value.at("next_learned").to_number<uint64_t>()};
}

void write_state(const Places& places, const SyncState& state) {
  const std::string text = json::serialize(json::object{
      {"base", state.base}, {"sent_next", state.sent_next}, {"next_learned", state.next_learned}});
  const Fd file =
      base::open_file_at(places.top.get(), "sync.json.new", O_WRONLY | O_CREAT | O_TRUNC, 0600);
  base::write_all(file.get(), text);
  base::check(renameat(places.top.get(), "sync.json.new", places.top.get(), "sync.json"),
              "replace sync.json");
}

std::vector<uint64_t> learned_numbers(const Places& places) {
  std::vector<uint64_t> numbers;
  for (const std::string& name : base::list_directory(places.learned.get())) {
    uint64_t number = 0;
    std::from_chars(name.data(), name.data() + name.size(), number);
    numbers.push_back(number);
  }
  return numbers;
}

// path, digest: each after its length (u32); then a byte of flags.
void append_learned(std::string& out, const std::string& path, const packs::LearnedEntry& entry) {
  for (const std::string* text : {&path, &entry.digest}) {
    base::append_number(out, static_cast<uint32_t>(text->size()));
    out += *text;
  }
  out += static_cast<char>((entry.removed ? 1 : 0) | (entry.fresh ? 2 : 0));
}

// A file cut short by a kill ends with its last whole entry.
void learn_all(std::string_view text, packs::SentList& list) {
  const auto take = [&text](size_t size) {
    std::optional<std::string> taken;
    if (text.size() >= size) {
      taken.emplace(text.substr(0, size));
      text.remove_prefix(size);
    }
    return taken;
  };
  const auto take_text = [&]() -> std::optional<std::string> {
    const auto size = take(sizeof(uint32_t));
    return size ? take(base::number_at<uint32_t>(size->data())) : std::nullopt;
  };
  for (;;) {
    const auto path = take_text();
    const auto digest = path ? take_text() : std::nullopt;
    const auto flags = digest ? take(1) : std::nullopt;
    if (!flags) return;
    list.learn(*path, {*digest, ((*flags)[0] & 1) != 0, ((*flags)[0] & 2) != 0});
  }
}

void forget_learned(const Places& places, uint64_t newest) {
  for (const uint64_t number : learned_numbers(places)) {
    if (number <= newest) unlinkat(places.learned.get(), std::to_string(number).c_str(), 0);
  }
}

// Link has pack base+1, so the list of that round becomes the base. Repeating a step is harmless.
void acknowledge(const Places& places, SyncState& state) {
  if (renameat(places.sent.get(), kNext, places.sent.get(), kBase) != 0 && errno != ENOENT)
    base::throw_errno("keep the list of sent entries");
  forget_learned(places, state.next_learned);
  state = {state.base + 1, false, 0};
  write_state(places, state);
}

void begin_round(const Places& places, const char* name) {
  for (const char* old : {name, kQuiet}) {
    if (unlinkat(places.sent.get(), old, 0) != 0 && errno != ENOENT)
      base::throw_errno("remove an old list of sent entries");
  }
  if (linkat(places.sent.get(), kBase, places.sent.get(), name, 0) != 0)
    base::throw_errno("copy the list of sent entries");
}

// The pids of a sandbox's processes, as seen from here.
std::vector<pid_t> processes_of(const ProcessOne& one) {
  if (one.overlay == OverlayKind::none) return descendants(one.identity.pid);
  const auto namespace_of = [](int pid) -> uint64_t {
    struct stat status {};
    const std::string path = "/proc/" + std::to_string(pid) + "/ns/pid";
    return stat(path.c_str(), &status) == 0 ? status.st_ino : 0;
  };
  const uint64_t wanted = namespace_of(one.identity.pid);
  std::vector<pid_t> pids;
  for (const std::string& name : base::list_directory("/proc")) {
    const int pid = std::atoi(name.c_str());
    if (pid > 0 && wanted != 0 && namespace_of(pid) == wanted) pids.push_back(pid);
  }
  return pids;
}

std::set<ino_t> mapped_by(const std::vector<pid_t>& processes, const std::string& sandbox,
                          const ProcessOne& one) {
  if (one.overlay != OverlayKind::none) return layers::mapped_inodes(processes, sandbox);
  std::set<ino_t> inodes;
  for (const pid_t pid : processes) {
    const std::string maps = base::read_proc_file(pid, "maps");
    for (const char* place : {"/workspace", "/home/user"}) {
      for (const auto& mapping : layers::shared_mappings(maps, place)) inodes.insert(mapping.inode);
    }
  }
  return inodes;
}

std::string spool_names(const Places& places) {
  std::string names;
  for (const std::string& name : base::list_directory(places.spool.get())) names += name + "\n";
  return names;
}

void write_quiet(const Places& places, const std::string& spool) {
  const Fd file = base::open_file_at(places.sent.get(), kQuiet, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  base::write_all(file.get(), spool);
}

// Only process 1, or without a pid namespace its one child, the warden.
bool nothing_runs(const ProcessOne& one) {
  const std::vector<pid_t> pids = processes_of(one);
  if (one.overlay == OverlayKind::none) return pids.size() <= 1;
  return pids == std::vector<pid_t>{one.identity.pid};
}

// Every command has a file in the spool from its start until it has arrived here whole.
bool is_quiet(const Places& places, const ProcessOne& one, const SyncState& state) {
  const Fd file = base::try_open_beneath(places.sent.get(), kQuiet, O_RDONLY);
  if (!file || !nothing_runs(one)) return false;
  const std::string before = "\n" + base::read_up_to(file.get(), kMaxSpoolNames);
  for (const std::string& name : base::list_directory(places.spool.get())) {
    if (before.find("\n" + name + "\n") == std::string::npos) return false;
  }
  for (const uint64_t number : learned_numbers(places)) {
    if (number > state.next_learned) return false;
  }
  return true;
}

// The pack of one round, made when there is something to say.
class PackFile {
 public:
  PackFile(const Places& places, const char* name) : places_(places), name_(name) {}
  packs::PackWriter& writer() {
    if (!writer_) {
      unlinkat(places_.top.get(), name_, 0);  // a reader may still have it open
      file_ = base::open_file_at(places_.top.get(), name_, O_RDWR | O_CREAT | O_EXCL, 0600);
      writer_ = std::make_unique<packs::PackWriter>(
          [this](std::string_view bytes) { base::write_all(file_.get(), bytes); });
    }
    return *writer_;
  }
  void finish() {
    if (writer_) writer_->finish();
  }
  // After finish(); empty: nothing differs.
  Fd take() { return std::move(file_); }

 private:
  const Places& places_;
  const char* const name_;
  Fd file_;
  std::unique_ptr<packs::PackWriter> writer_;
};

// All paths that a pack speaks of.
std::vector<std::string> paths_of(Fd file) {
  struct Paths : packs::PackVisitor {
    std::vector<std::string> all;
    void add(const std::string& path) {
      if (all.size() >= kMaxLosses) throw_lost();
      all.push_back(path);
    }
    // A directory that differs: link sends it with what it holds.
    void entry(const packs::Node& entry) override {
      if (entry.type != packs::NodeType::directory) add(entry.path);
    }
    void growth(const std::string& path) override { add(path); }
    void piece(uint64_t, std::string_view) override {}
    void end_pieces() override {}
    void removal(const std::string& path) override { add(path); }
  };
  if (!file) return {};
  Paths paths;
  packs::PackReader(std::move(file)).read_changes(paths);
  return std::move(paths.all);
}

}  // namespace

void throw_lost() {
  throw Error(Code::not_found,
              "this machine was paused, and has lost files and records of the sandbox since",
              "remove it there, and start it again from the workspace");
}

Acknowledged last_acknowledged(const std::string& sandbox) {
  const SyncState state = read_state(base::open_directory(sandbox).get());
  return {state.base, state.sent_next};
}

void begin_record(const std::string& sandbox, const ProcessOne& one) {
  Places places(sandbox, one);
  packs::SentList list(places.sent.get(), kBase);
  if (list.exists()) return;
  packs::FinderOptions options;
  options.roots = places.enter(one);
  options.marks = marks_of(one);
  options.passes = 1;
  packs::MergedFinder(options, list).find({});
  list.commit();
}

void apply_changes(const std::string& sandbox, const ProcessOne& one, uint64_t number, Fd pack) {
  Places places(sandbox, one);
  const packs::PackReader reader(std::move(pack));
  const bool learns = packs::SentList(places.sent.get(), kBase).exists();
  Fd learned;
  if (learns) {
    learned = base::open_file_at(places.learned.get(), std::to_string(number),
                                 O_WRONLY | O_CREAT | O_TRUNC, 0600);
  }
  packs::MergedApplier::Options options;
  options.roots = places.enter(one);
  umask(
      0);  // a pipe cannot get its mode afterwards: the sandbox's /proc does not know this process
  std::string waiting;
  options.made = [&](const std::string& path, const packs::LearnedEntry& entry) {
    if (!learns) return;
    append_learned(waiting, path, entry);
    if (waiting.size() < (64 << 10)) return;
    base::write_all(learned.get(), waiting);
    waiting.clear();
  };
  packs::apply_pack(reader, options);
  if (learns) base::write_all(learned.get(), waiting);
}

bool find_changes(const std::string& sandbox, const ProcessOne& one, uint64_t acknowledged) {
  Places places(sandbox, one);
  SyncState state = read_state(places.top.get());
  if (state.sent_next && acknowledged == state.base + 1) acknowledge(places, state);
  // Its numbers go on where those of an earlier sandbox with that directory ended.
  if (state.base == 0 && !state.sent_next) state.base = acknowledged;
  if (acknowledged != state.base) {
    throw Error(Code::conflict, "pack " + std::to_string(acknowledged) + " was acknowledged, but " +
                                    std::to_string(state.base) + " is the last one here");
  }
  if (!packs::SentList(places.sent.get(), kBase).exists()) return false;  // nothing ever ran here
  const std::string spool = spool_names(places);
  begin_round(places, kNext);
  packs::SentList list(places.sent.get(), kNext);
  uint64_t newest = 0;
  for (const uint64_t number : learned_numbers(places)) {
    const Fd file = base::open_file_at(places.learned.get(), std::to_string(number), O_RDONLY);
    learn_all(base::read_up_to(file.get(), kMaxLearnedBytes), list);
    newest = std::max(newest, number);
  }
  const bool quiet = nothing_runs(one);  // what starts from now on adds to the spool
  packs::FinderOptions options;
  options.mapped_looked_ns = wall_ns();
  options.mapped = mapped_by(processes_of(one), sandbox, one);
  options.roots = places.enter(one);
  options.marks = marks_of(one);
  PackFile pack(places, "sync.pack");
  const packs::FoundChanges found =
      packs::MergedFinder(options, list).find([&]() -> packs::PackWriter& {
        return pack.writer();
      });
  pack.finish();
  list.commit();
  state.sent_next = found.any();
  state.next_learned = newest;
  write_state(places, state);
  if (quiet) write_quiet(places, spool);
  if (found.any()) return true;
  // Nothing to acknowledge: the next round may begin from here.
  base::check(renameat(places.sent.get(), kNext, places.sent.get(), kBase),
              "keep the list of sent entries");
  forget_learned(places, newest);
  return false;
}

Losses find_losses(const std::string& sandbox, const ProcessOne& one, uint64_t acknowledged) {
  Places places(sandbox, one);
  SyncState state = read_state(places.top.get());
  const bool recorded = packs::SentList(places.sent.get(), kBase).exists();
  if (!one.started && !recorded && acknowledged == 0) return {};
  if (state.sent_next && acknowledged == state.base + 1) acknowledge(places, state);
  if (!recorded || acknowledged != state.base) throw_lost();
  if (state.sent_next || !is_quiet(places, one, state)) return {};
  begin_round(places, kCheck);
  packs::SentList list(places.sent.get(), kCheck);
  packs::FinderOptions options;
  options.roots = places.enter(one);
  options.marks = marks_of(one);
  options.passes = 1;
  PackFile pack(places, "check.pack");
  packs::MergedFinder(options, list).find([&]() -> packs::PackWriter& { return pack.writer(); });
  pack.finish();
  list.remove();
  return {true, paths_of(pack.take())};
}

}  // namespace moorage::outpost
