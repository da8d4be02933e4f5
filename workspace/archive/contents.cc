#include "workspace/archive/contents.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "backends/registry.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/wire/journal_middle.h"
#include "repo_cache/repo_cache.h"
#include "state_db/store.h"
#include "state_db/tables/execs.h"
#include "workspace/archive/store.h"

namespace moorage::workspace {
namespace {

constexpr std::chrono::hours kPackDeadline{2};
constexpr size_t kExecsAtOnce = 1000;

// Exports a running command as interrupted, with a copy of its output so far if it has a journal.
// nullopt: it has no journal, or has ended.
std::optional<SpooledFile> cut_short(Context& context, state_db::ExecRow& row,
                                     const std::string& path, const std::string& spool) {
  std::optional<SpooledFile> copy;
  base::JournalCopy copied;
  if (base::path_exists(path)) {
    const base::Fd file = base::open_file(path, O_RDONLY | O_NOFOLLOW);
    copy.emplace().fd = ArchiveStore::spool(spool);
    copied = base::copy_journal(file.get(), [&copy](std::string_view bytes) {
      base::write_all(copy->fd.get(), bytes);
      copy->bytes += bytes.size();
    });
  }
  row = state_db::ExecTable(context.store).get(row.id);
  if (row.state != state_db::ExecState::running) return std::nullopt;  // it ended meanwhile
  row.state = row.outcome.state = state_db::ExecState::interrupted;
  row.outcome.category = state_db::ExecCategory::lost;
  row.outcome.error = "it was still running when it was exported";
  row.outcome.ended_wall_ms = context.store.clock().wall_ms();
  row.outcome.output_bytes = copied.output_bytes;
  row.outcome.omitted_bytes = copied.dropped_bytes;
  return copy;
}

// Spools all rows of its commands, oldest first, and collects their journals.
SpooledFile spool_execs(Context& context, base::WorkspaceId id, const std::string& spool,
                        ArchiveContents& contents) {
  SpooledFile file{ArchiveStore::spool(spool), 0};
  auto& journals = contents.journals;
  journals.path = [&options = context.options, id](base::ExecId exec) {
    return journal_directory(options, id, exec) + "/output";
  };
  base::ExecId after;
  for (;;) {
    const auto rows = state_db::ExecTable(context.store).list_after(id, after, kExecsAtOnce);
    if (rows.empty()) return file;
    std::string lines;
    for (auto row : rows) {
      const std::string path = journals.path(row.id);
      std::optional<SpooledFile> copy;
      if (row.state == state_db::ExecState::running) copy = cut_short(context, row, path, spool);
      lines += write_exec_line(row);
      if (copy || base::path_exists(path)) journals.of.push_back(row.id);
      if (copy) journals.copies.emplace(row.id, *std::move(copy));
    }
    base::write_all(file.fd.get(), lines);
    file.bytes += lines.size();
    after = rows.back().id;
  }
}

}  // namespace

ManifestImage identify_image(Context& context, const state_db::WorkspaceRow& row) {
  auto* backend = context.backends.find(row.backend);
  if (row.image == "host" || !backend) return {};
  try {
    const auto found = backend->find_image(row.image);
    return found ? ManifestImage{found->id, found->source} : ManifestImage{};
  } catch (const Error& error) {
    base::log(base::LogLevel::warning, "archive.image_unknown",
              {{"ws", row.id}, {"image", row.image}, {"error", error.message()}});
    return {};
  }
}

ArchiveContents contents_of(Context& context, Repositories& repositories,
                            const state_db::WorkspaceRow& row, const ArchivedLayers& archived,
                            const std::string& spool) {
  ArchiveContents contents;
  Manifest& manifest = contents.manifest;
  manifest.store = context.store.store_id();
  manifest.made_wall_ms = context.store.clock().wall_ms();
  manifest.workspace = row;
  manifest.repository = state_db::RepositoryTable(context.store).get(row.repository);
  manifest.image = identify_image(context, row);
  describe(archived, manifest);
  manifest.forked_from = row.fork_of;
  if (row.forked_from) {
    const auto origin = state_db::SnapshotTable(context.store).get(row.forked_from);
    manifest.forked_from = {manifest.store, origin.workspace, origin.id,
                            state_db::WorkspaceTable(context.store).get(origin.workspace).name};
  }
  const std::string repo = repo_directory(row.repository);
  const auto base = repositories.ensure_base_tree(row.repository, row.base_commit, {});
  // Upstream's current refs are not enough: an agent may have merged commits that only exist here.
  contents.refs = context.repos.all_refs(repo);
  contents.pack.fd = ArchiveStore::spool(spool);
  context.repos.export_pack(repo, row.base_commit, contents.pack.fd.get(), kPackDeadline);
  struct stat status;
  base::check(fstat(contents.pack.fd.get(), &status), "stat the pack");
  contents.pack.bytes = static_cast<uint64_t>(status.st_size);
  contents.execs = spool_execs(context, row.id, spool, contents);
  contents.parts = parts_of(context, archived, base);
  contents.base_in_use = base.in_use;
  return contents;
}

}  // namespace moorage::workspace
