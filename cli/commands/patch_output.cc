#include "cli/commands/patch_output.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "cli/client/api.h"

namespace moorage::cli {
namespace {

constexpr std::string_view kMark = "# moorage: ";
constexpr size_t kMostNamed = 100;

Colour colour_of(std::string_view line) {
  if (line.starts_with("+++") || line.starts_with("---") || line.starts_with("diff ")) {
    return Colour::bold;
  }
  if (line.starts_with("+")) return Colour::green;
  if (line.starts_with("-")) return Colour::red;
  return line.starts_with("@@") ? Colour::yellow : Colour::plain;
}

// Prints whole lines on a terminal and keeps the rest for the next piece.
class TerminalPatch {
 public:
  explicit TerminalPatch(Context& context) : context_(context) {}

  void feed(std::string_view bytes) {
    buffer_.append(bytes);
    std::string out;
    size_t begin = 0;
    for (size_t end; (end = buffer_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      const auto text = std::string_view(buffer_).substr(begin, end - begin);
      if (!text.starts_with(kMark)) out += line(text) + "\n";
    }
    buffer_.erase(0, begin);
    context_.print(out);
  }
  void finish() {
    if (!buffer_.empty()) context_.print(line(buffer_) + "\n");
  }

 private:
  std::string line(std::string_view text) const {
    const std::string shown = printable_lines(text);
    return context_.terminal.colours ? coloured(shown, colour_of(text)) : shown;
  }
  Context& context_;
  std::string buffer_;
};

// The marked lines on top of a patch.
class LeftOutLines {
 public:
  void feed(std::string_view bytes) {
    if (done_) return;
    buffer_.append(bytes);
    for (size_t end; (end = buffer_.find('\n')) != std::string::npos; buffer_.erase(0, end + 1)) {
      if (!buffer_.starts_with(kMark)) break;
      lines_.push_back(buffer_.substr(kMark.size(), end - kMark.size()));
    }
    const size_t known = std::min(buffer_.size(), kMark.size());
    done_ = buffer_.compare(0, known, kMark, 0, known) != 0;
    if (done_) buffer_.clear();
  }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::string buffer_;
  std::vector<std::string> lines_;
  bool done_ = false;
};

// Quoted for a shell: an agent chose the path.
std::string copy_command(const std::string& path, const std::string& name) {
  return join_command({"moorage", "cp", name + ":" + path, "DIR"});
}

std::string explain(const Json& file, const std::string& name) {
  const std::string path = base::escape_for_message(file.bytes("path"));
  const std::string copy = copy_command(file.bytes("path"), name);
  const std::string why = file.text("why");
  if (why == "nested" || why == "name") return left_out_text(file.bytes("path"), why, name);
  if (why == "converted")
    return path +
           ": git apply may write other bytes (line ends, filters) than the workspace has; exact "
           "copy: " +
           copy;
  if (why == "unreadable") {
    return path + " is not in this patch: the repository cache lacks its former version; see: " +
           "moorage doctor";
  }
  const bool full = why == "full";
  if (file.has("removed") && file.flag("removed")) {
    return path + " was deleted, and " +
           (full ? "this patch is full" : "it is too large for a patch") + "; remove it: git rm";
  }
  const std::string sized = path + " (" + format_size(file.number("bytes")) + ")";
  if (!full) return sized + " is too large for a patch; copy it: " + copy;
  return sized + " is not in this patch, which is full; copy it: " + copy +
         ", or name fewer paths: " + join_command({"moorage", "diff", name, "--", "PATH"});
}

}  // namespace

std::string left_out_text(const std::string& path, const std::string& why,
                          const std::string& name) {
  const std::string shown = base::escape_for_message(path);
  const std::string copy = copy_command(path, name);
  if (why == "name") return shown + " is not in this patch: git refuses its name; copy it: " + copy;
  return shown + " is a nested repository and not in this patch; copy it: " + copy +
         "; with all of its .git: " +
         join_command({"moorage", "exec", name, "--", "tar", "c", "./" + path}) + " > FILE.tar";
}

int print_patch(Context& context, const std::string& target, const std::string& name,
                const std::string& if_empty) {
  bool is_empty = true;
  TerminalPatch patch(context);
  LeftOutLines left_out;
  const bool raw = !context.terminal.out;
  context.api().download(target, [&](std::string_view bytes) {
    left_out.feed(bytes);
    is_empty = is_empty && bytes.empty();
    raw ? context.print(bytes) : patch.feed(bytes);
  });
  if (!raw) patch.finish();
  if (is_empty && !if_empty.empty()) context.note(if_empty);
  const auto& lines = left_out.lines();
  for (size_t n = 0; n < std::min(lines.size(), kMostNamed); ++n)
    context.note(explain(Json::parse(lines[n]), name));
  if (lines.size() > kMostNamed) {
    context.note("and " + count_of(static_cast<int64_t>(lines.size() - kMostNamed), "more file") +
                 "; a patch in a file lists all on top");
  }
  return lines.empty() ? 0 : kPatchIsPartial;
}

}  // namespace moorage::cli
