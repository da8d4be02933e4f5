// An import accepts every export that was reported as whole: each rule of an import also fails the
// read-back of an export, which makes nothing.
#include "workspace/archive/import_check.h"

#include <signal.h>

#include <catch2/catch.hpp>
#include <functional>

#include "config/load.h"
#include "workspace/archive/whole_archive.h"

using namespace moorage;
using namespace moorage::packs;
using namespace moorage::workspace;

namespace {

struct Upper {
  TemporaryDirectory directory;
  Upper() { REQUIRE(lchown(directory.path().c_str(), kDiskFirstId, kDiskFirstId) == 0); }
};

using Change = std::function<void(ArchiveContents&)>;

// Returns the refusal of the export's read-back; empty: it is whole.
std::string refusal_of(const Change& change) {
  const Upper upper;
  signal(SIGPIPE, SIG_IGN);  // as the daemon does
  ReadBack check([](std::string_view) {},
                 {.limits = {}, .disk_first_id = 0, .unnamed_file = unnamed_file});
  ArchiveContents contents = empty_workspace(upper.directory.path());
  change(contents);
  for (size_t n = 1; n < contents.manifest.layers.size(); ++n) {
    for (const std::string name : kLayerParts) {
      LayerPart part = contents.parts.front();
      part.prefix = part_prefix(n, name);
      contents.parts.push_back(part);
    }
  }
  try {
    check.finish(write_archive(contents, {.level = 1, .threads = 1, .unnamed_file = unnamed_file},
                               [&check](std::string_view bytes) { check.write(bytes); }));
  } catch (const base::Error& error) {
    return error.message();
  }
  return {};
}

void set_snapshots(ArchiveContents& contents, const std::vector<std::string>& names) {
  contents.manifest.layers = {{.id = "ly_2", .below = 1}, {.id = "ly_1", .below = {}}};
  for (const std::string& name : names) {
    ManifestSnapshot snapshot;
    snapshot.id = "sn_1";
    snapshot.layer = 1;
    snapshot.name = name;
    contents.manifest.snapshots.push_back(snapshot);
  }
}

using Fill = std::function<void(ArchiveWriter&)>;

// For an entry below the root of a part: making it and only checking it give the same answer.
void check_refused(const Fill& fill, bool refused = true) {
  const std::string bytes = write_archive([&](ArchiveWriter& writer) {
    ArchiveEntry root;
    root.path = "layers/0/tree";
    root.type = NodeType::directory;
    writer.begin(root);
    fill(writer);
  });
  const auto is_refused = [](const std::function<void()>& read) {
    try {
      read();
    } catch (const base::Error& error) {
      CHECK(error.code() == base::Code::invalid_argument);
      return true;
    }
    return false;
  };
  const TemporaryDirectory upper;
  CHECK(is_refused([&] { restore_part(bytes, upper.path()); }) == refused);
  CHECK(is_refused([&] {
          ArchiveReader reader(from_memory(bytes), {});
          LayerDryRun dry_run("layers/0/tree", kDiskFirstId, unnamed_file);
          while (const ArchiveEntry* entry = reader.next()) dry_run.take(*entry, reader);
          dry_run.finish();
        }) == refused);
}

ArchiveEntry entry(const std::string& name, NodeType type, const std::string& target = "") {
  ArchiveEntry made;
  made.path = "layers/0/tree/" + name;
  made.type = type;
  made.target = target;
  return made;
}

}  // namespace

TEST_CASE("an import takes limits above those of today", "[archive]") {
  CHECK(refusal_of([](ArchiveContents& contents) {
          auto& limits = contents.manifest.workspace.policy.limits;
          limits.memory_bytes = uint64_t{1} << 51;
          limits.pids = 5'000'000;
          limits.disk_bytes = uint64_t{1} << 51;
        }).empty());
}

TEST_CASE("an export that an import would refuse fails", "[archive]") {
  REQUIRE(refusal_of([](ArchiveContents&) {}).empty());
  const auto row = [](const std::function<void(state_db::WorkspaceRow&)>& change) -> Change {
    return [change](ArchiveContents& contents) { change(contents.manifest.workspace); };
  };
  const std::vector<std::pair<std::string, Change>> cases{
      {"name", row([](auto& r) { r.name = "A name"; })},
      {"branch", row([](auto& r) { r.branch = "a..b"; })},
      {"label", row([](auto& r) { r.labels[std::string(1000, 'k')] = "v"; })},
      {"memory", row([](auto& r) { r.policy.limits.memory_bytes = 1; })},
      {"cpus", row([](auto& r) { r.policy.limits.cpus = 5000; })},
      {"pids", row([](auto& r) { r.policy.limits.pids = 1; })},
      {"disk", row([](auto& r) { r.policy.limits.disk_bytes = 1; })},
      {"files", row([](auto& r) { r.policy.limits.disk_files = 1; })},
      {"cache", row([](auto& r) { r.policy.caches = {"../beside"}; })},
      {"url", [](ArchiveContents& c) { c.manifest.repository.url = "a\nb"; }},
      {"layers",
       [](ArchiveContents& c) {
         c.manifest.layers.clear();
         for (size_t n = 1; n <= 61; ++n) c.manifest.layers.push_back({"ly_1", n});
         c.manifest.layers.back().below.reset();
       }},
      {"snapshot's name", [](ArchiveContents& c) { set_snapshots(c, {"not valid"}); }},
      {"snapshots of one name",
       [](ArchiveContents& c) {
         set_snapshots(c, {"one", "one"});
       }},
      {"commands",
       [](ArchiveContents& c) {
         add_execs(c, 2);
         add_execs(c, 2);
         c.execs.bytes *= 2;
       }},
      {"output", [](ArchiveContents& c) {
         c.journals.of = {base::ExecId{1}};
         c.journals.copies[base::ExecId{1}] = {unnamed_file(), 0};
       }}};
  for (const auto& [name, change] : cases) {
    INFO(name);
    const std::string refusal = refusal_of(change);
    CHECK(refusal.find("an import would refuse this archive: ") == 0);
    CHECK(refusal.find("is not a complete workspace") == std::string::npos);
  }
}

TEST_CASE("an archive may have any number of commands, and each is found again", "[archive]") {
  constexpr int64_t kMany = 250'001;
  CHECK(refusal_of([](ArchiveContents& contents) {
          add_execs(contents, kMany);
          contents.journals.of = {base::ExecId{1}, base::ExecId{4097}, base::ExecId{kMany}};
          for (const auto exec : contents.journals.of)
            contents.journals.copies[exec] = {unnamed_file(), 0};
        }) == "");
  ExecIds ids(unnamed_file());
  for (int64_t n = 1; n <= 5000; ++n) ids.add(base::ExecId{3 * n}, base::ExecId{n});
  for (const int64_t n : {1, 2, 2500, 4095, 4096, 4097, 5000}) {
    CHECK(ids.find(base::ExecId{3 * n}) == base::ExecId{n});
    CHECK_FALSE(ids.find(base::ExecId{3 * n + 1}));
  }
  ids.add(base::ExecId{20'000}, base::ExecId{7});
  CHECK(ids.find(base::ExecId{20'000}) == base::ExecId{7});
  CHECK_FALSE(ids.find(base::ExecId{1}));
}

TEST_CASE("an impossible layer is recognized without making it", "[archive]") {
  const auto put = [](const ArchiveEntry& what) {
    return [what](ArchiveWriter& writer) { writer.begin(what); };
  };
  const auto both = [&](const ArchiveEntry& one, const ArchiveEntry& other) {
    return [one, other](ArchiveWriter& writer) {
      writer.begin(one);
      writer.begin(other);
    };
  };
  const ArchiveEntry fifo = entry("fifo", NodeType::fifo);
  const ArchiveEntry directory = entry("d", NodeType::directory);
  const auto link = [](const std::string& target) {
    return entry("link", NodeType::hard_link, target);
  };
  check_refused(put(fifo), false);
  check_refused(both(fifo, link(fifo.path)), false);
  check_refused(both(directory, entry("d/in", NodeType::fifo)), false);
  check_refused(both(fifo, fifo));
  check_refused(put(link(fifo.path)));
  check_refused(both(link(fifo.path), fifo));
  check_refused(both(directory, link(directory.path)));
  check_refused(both(entry("w", NodeType::whiteout), link("layers/0/tree/w")));
  check_refused(both(fifo, link("layers/0/home/fifo")));
  check_refused(put(entry("nowhere/file", NodeType::fifo)));
  check_refused(both(fifo, entry("fifo/below", NodeType::fifo)));
  ArchiveEntry odd = fifo;
  odd.attributes["trusted.overlay.opaque"] = "y";
  check_refused(put(odd));
  ArchiveEntry symlink = entry("s", NodeType::symlink, "fifo");
  symlink.attributes["user.a"] = "b";
  check_refused(put(symlink));
  check_refused([](ArchiveWriter& writer) {
    std::string path;
    for (unsigned depth = 0; depth <= kMaxArchiveDepth; ++depth) {
      path += depth == 0 ? "d" : "/d";
      writer.begin(entry(path, NodeType::directory));
    }
  });
}

TEST_CASE("an import accepts every limit that a host's configuration allows", "[archive]") {
  const std::vector<std::pair<std::string, std::vector<std::string>>> walks{
      {"sandbox.memory_bytes", {"0", "1", "16777215", "16777216", "1024TiB", "1025TiB"}},
      {"sandbox.cpus", {"0", "0.009", "0.01", "0.049", "0.05", "1024", "1025", "4096", "4097"}},
      {"sandbox.pids", {"0", "3", "4", "15", "16", "4194304", "4194305"}},
      {"workspace.disk_limit_bytes", {"0", "1", "1048575", "1048576", "1024TiB", "1025TiB"}},
      {"workspace.disk_limit_files", {"0", "1", "99", "100", "4000000000", "4000000001"}}};
  for (const auto& [setting, values] : walks) {
    size_t accepted = 0;
    for (const std::string& value : values) {
      INFO(setting << "=" << value);
      config::Settings settings;
      try {
        settings = config::load({.file = "/dev/null", .overrides = {{setting, value}}}).settings;
      } catch (const base::Error&) {
        continue;
      }
      ++accepted;
      ArchiveContents contents = empty_workspace("/");
      contents.manifest.workspace.policy.limits = {
          .memory_bytes = settings.sandbox.memory_bytes,
          .cpus = settings.sandbox.cpus,
          .pids = settings.sandbox.pids,
          .disk_bytes = settings.workspace.disk_limit_bytes,
          .disk_files = settings.workspace.disk_limit_files};
      CHECK_NOTHROW(ImportCheck(unnamed_file).manifest(contents.manifest));
    }
    CHECK(accepted >= 2);
    CHECK(accepted < values.size());
  }
}
