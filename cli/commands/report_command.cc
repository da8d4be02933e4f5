// `report`: the record of a workspace as one file, for a reviewer.
#include <optional>

#include "cli/commands.h"
#include "cli/local/new_file.h"
#include "cli/report/report.h"

namespace moorage::cli {
namespace {

struct ReportOptions {
  std::string workspace;
  std::string format;
  std::string file;
  bool full = false;
  bool force = false;

  void declare(Options& options) {
    options.argument({"NAME", "", "The workspace"}, workspace);
    options.value({"--format", "FORMAT", "markdown or html; default: by the ending of FILE"},
                  format);
    options.value({"-o,--output", "FILE", "The file to write; default: standard output"}, file);
    options.flag({"--force", "", "Replace FILE if it exists"}, force);
    options.flag({"--full", "", "Include more: up to 256M of the patch"}, full);
  }
};

bool wants_html(const ReportOptions& options) {
  const std::string& format = options.format;
  if (format.empty()) return options.file.ends_with(".html") || options.file.ends_with(".htm");
  if (format == "html") return true;
  if (format == "markdown" || format == "md") return false;
  throw Error(Code::invalid_argument, "--format takes markdown or html, not '" + format + "'");
}

// Gathers small pieces into larger writes.
class Output {
 public:
  explicit Output(int fd) : fd_(fd) {}
  void add(std::string_view bytes) {
    buffer_ += bytes;
    bytes_ += bytes.size();
    if (buffer_.size() >= 64 << 10) flush();
  }
  void flush() {
    base::write_all(fd_, buffer_);
    buffer_.clear();
  }
  uint64_t bytes() const { return bytes_; }

 private:
  const int fd_;
  std::string buffer_;
  uint64_t bytes_ = 0;
};

void report(Context& context, const ReportOptions& options) {
  const bool html = wants_html(options);
  const bool to_file = !options.file.empty() && options.file != "-";
  if (context.json && !to_file) {
    throw Error(Code::invalid_argument, "report does not support --json",
                "the same data: moorage --json show, history, snapshots, tree, diff");
  }
  std::optional<base::AtomicFile> file;
  if (to_file) {
    const auto existing = options.force ? Existing::replaced : Existing::refused;
    file.emplace(options.file, new_file(options.file, existing));
  }
  Output output(file ? file->fd() : STDOUT_FILENO);
  const auto sink = [&output](std::string_view bytes) { output.add(bytes); };
  const auto writer = html ? html_report(sink) : markdown_report(sink);
  write_report(context, *writer, options.workspace, options.full ? full_report() : ReportLimits{});
  output.flush();
  if (!file) return;
  file->commit_durable();
  if (context.json) {
    return context.print_json(JsonObject()
                                  .add("workspace", options.workspace)
                                  .add("file", options.file)
                                  .add("format", html ? "html" : "markdown")
                                  .add("bytes", static_cast<int64_t>(output.bytes())));
  }
  context.print_label("report", options.workspace + "   " + format_size(output.bytes()) +
                                    (html ? " of HTML in " : " of Markdown in ") + options.file);
}

}  // namespace

Action report_command(Options& options) { return run_with<ReportOptions>(options, report); }

}  // namespace moorage::cli
