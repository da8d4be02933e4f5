// `archive`, `unarchive`, `export`, `import`: pack workspaces, and move them to other hosts.
#include <fcntl.h>
#include <unistd.h>

#include <boost/crc.hpp>
#include <optional>

#include "base/os/files.h"
#include "cli/commands.h"
#include "cli/local/new_file.h"
#include "cli/views/progress.h"
#include "cli/views/workspace_view.h"

namespace moorage::cli {
namespace {

using Names = std::vector<std::string>;

// Every archive ends with a skippable zstd frame that has the SHA-256 of everything before it.
constexpr size_t kTrailerBytes = 48;
constexpr std::string_view kTrailerHead{"\x5E\x2A\x4D\x18\x28\x00\x00\x00MOORAGE\x01", 16};
constexpr size_t kPieceBytes = 1 << 20;

// Watches an archive pass: was its end seen, and which bytes?
class Watch {
 public:
  void see(std::string_view bytes) {
    bytes_ += bytes.size();
    sum_.process_bytes(bytes.data(), bytes.size());
    tail_ += bytes;
    if (tail_.size() > kTrailerBytes) tail_.erase(0, tail_.size() - kTrailerBytes);
  }
  bool has_end() const { return tail_.size() == kTrailerBytes && tail_.starts_with(kTrailerHead); }
  uint64_t bytes() const { return bytes_; }
  bool saw_the_same(const Watch& other) const {
    return bytes_ == other.bytes_ && sum_.checksum() == other.sum_.checksum();
  }

 private:
  std::string tail_;
  // This checksum catches errors of the disk; the SHA-256 catches changes by people.
  boost::crc_optimal<64, 0x42f0e1eba9ea3693, UINT64_MAX, UINT64_MAX, true, true> sum_;
  uint64_t bytes_ = 0;
};

// Reads from the disk, not from the page cache: the user may delete the workspace next.
void require_kept(base::AtomicFile& file, const Watch& written, const std::string& path) {
  file.sync();
  ::posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED);
  Watch kept;
  for (std::string piece; !(piece = base::read_at(file.fd(), kPieceBytes, kept.bytes())).empty();) {
    kept.see(piece);
  }
  if (kept.saw_the_same(written)) return;
  throw Error(Code::corrupted, path + " differs from the data that was written to it",
              "the disk is faulty; export to another one");
}

// An answer with a notice: nothing was to do.
void for_each(Context& context, const Names& names, const std::string& verb,
              const std::function<std::string(const Json&)>& describe) {
  for (const std::string& name : names) {
    Progress progress(context);
    const std::string answer = context.api().send_long(
        "POST", context.workspace_path(name, "/" + verb), {}, progress.sink());
    progress.finish();
    const auto workspace = context.parse_or_print(answer);
    if (!workspace) continue;
    const std::string notice = workspace->text("notice");
    notice.empty() ? context.print_label(verb + "d", name + "   " + describe(*workspace))
                   : context.print_label("unchanged", notice);
  }
}

struct ExportOptions {
  std::string workspace;
  std::string file;
  bool without_snapshots = false;

  void declare(Options& options) {
    options.argument({"NAME", "", "The workspace"}, workspace);
    options.argument({"FILE", "", "The file to write; - is standard output"}, file);
    options.flag({"--without-snapshots", "", "Leave the snapshots out"}, without_snapshots);
  }
};

struct ImportOptions {
  std::string file;
  std::string name;

  void declare(Options& options) {
    options.argument({"FILE", "", "A file from export; - is standard input"}, file);
    options.value({"--name", "NAME", "Name of the workspace; default: as in the archive"}, name);
  }
};

// "3 snapshots included", "without its snapshots".
std::string snapshots_text(const HttpResponse& answer, bool without) {
  if (without) return "without its snapshots";
  const std::string count = answer.header("Moorage-Snapshots");
  if (count.empty() || count == "0") return "no snapshots";
  return count + (count == "1" ? " snapshot" : " snapshots") + " included";
}

// An import needs the same image; say so while this host still has it.
void note_image(Context& context, const HttpResponse& answer) {
  const std::string image = answer.header("Moorage-Image");
  if (image.empty()) return;
  const std::string id = answer.header("Moorage-Image-Id");
  const std::string source = answer.header("Moorage-Image-Source");
  context.note("to import it, a host needs image " + image + (id.empty() ? "" : " (" + id + ")") +
               (source.empty() ? "" : ": docker pull " + source + ", or") +
               (source.empty() ? ": " : " ") + "docker save " + image +
               " here, then docker load there");
}

void export_workspace(Context& context, const ExportOptions& options) {
  const bool to_output = options.file == "-";
  if (to_output && ::isatty(STDOUT_FILENO)) {
    throw Error(Code::invalid_argument, "refusing to write an archive to a terminal",
                "moorage export " + options.workspace + " FILE, or pipe the output");
  }
  std::optional<base::AtomicFile> file;
  if (!to_output) file.emplace(options.file, new_file(options.file));
  Watch watch;
  Progress progress(context);
  const std::string target = context.workspace_path(options.workspace, "/export") +
                             (options.without_snapshots ? "?without_snapshots=1" : "");
  const HttpResponse answer = context.api().download(
      target,
      [&](std::string_view bytes) {
        watch.see(bytes);
        base::write_all(to_output ? STDOUT_FILENO : file->fd(), bytes);
        progress.update("export", -1, format_size(watch.bytes()));
      },
      kLongSilenceMs);
  if (!watch.has_end()) {
    throw Error(Code::corrupted, "the received archive is incomplete", "try again");
  }
  if (file) {
    require_kept(*file, watch, options.file);
    file->commit_durable();
  }
  progress.finish();
  note_image(context, answer);
  if (to_output) return;
  if (context.json) {
    return context.print_json(JsonObject()
                                  .add("workspace", options.workspace)
                                  .add("file", options.file)
                                  .add("bytes", static_cast<int64_t>(watch.bytes())));
  }
  context.print_label("exported", options.workspace + "   " + format_size(watch.bytes()) + " in " +
                                      options.file + ", verified; " +
                                      snapshots_text(answer, options.without_snapshots));
}

void import_workspace(Context& context, const ImportOptions& options) {
  const bool from_input = options.file == "-";
  const std::string what = "read " + (from_input ? "standard input" : options.file);
  const Fd file = from_input ? Fd(base::check(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3), what))
                             : base::open_file(options.file, O_RDONLY);
  std::string target = "/v1/workspaces/import";
  if (!options.name.empty()) target += "?name=" + percent_encode(options.name);
  uint64_t sent = 0;
  Progress progress(context);
  const std::string answer =
      context.api().upload("POST", target, [&](char* buffer, size_t room) -> size_t {
        const ssize_t got = base::check(::read(file.get(), buffer, room), what);
        sent += static_cast<uint64_t>(got);
        progress.update("import", -1, format_size(sent));
        return static_cast<size_t>(got);
      });
  progress.finish();
  const auto made = context.parse_or_print(answer);
  if (!made) return;
  const std::string name = made->text("name");
  if (made->has("notice")) context.note(made->text("notice"));
  context.print_label(
      "imported", name + "   " + format_size(sent) + "   next: moorage exec " + name + " -- CMD");
}

}  // namespace

Action archive_command(Options& options) {
  auto names = std::make_shared<Names>();
  options.required_arguments({"NAME", "", "The workspaces"}, *names);
  return run_with(names, [](Context& context, const Names& given) {
    for_each(context, given, "archive", [](const Json& workspace) {
      return size_text(workspace, "archive.bytes") + ", verified; exec or start unpacks it";
    });
  });
}

Action unarchive_command(Options& options) {
  auto names = std::make_shared<Names>();
  options.required_arguments({"NAME", "ARCHIVED", "The workspaces"}, *names);
  return run_with(names, [](Context& context, const Names& given) {
    for_each(context, given, "unarchive", [](const Json&) { return "all files restored"; });
  });
}

Action export_command(Options& options) {
  return run_with<ExportOptions>(options, export_workspace);
}
Action import_command(Options& options) {
  return run_with<ImportOptions>(options, import_workspace);
}

}  // namespace moorage::cli
