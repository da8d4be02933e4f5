// `diff` and `status`. A patch is bytes and is printed unchanged, except on a terminal: there
// control characters are escaped.
#include <algorithm>

#include "base/log.h"
#include "cli/client/context.h"
#include "cli/commands.h"
#include "cli/output/text.h"

namespace moorage::cli {
namespace {

struct DiffOptions {
  std::string name;
  bool stat = false;
};

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
      out += line(std::string_view(buffer_).substr(begin, end - begin)) + "\n";
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

// "src/a.ts | 212 +++++---", as git shows it, with a scaled bar.
std::string stat_line(const Json& file, size_t path_width, int64_t most) {
  constexpr int64_t kBar = 20;
  const int64_t added = file.number("added"), removed = file.number("removed");
  std::string path = shorten(printable(file.bytes("path")), path_width);
  path.append(path_width - std::min(path_width, display_width(path)), ' ');
  if (file.flag("binary")) return " " + path + " | binary " + file.text("change") + "\n";
  const int64_t total = std::max<int64_t>(most, kBar);
  const auto part = [total](int64_t n) {
    return static_cast<size_t>(n == 0 ? 0 : std::max<int64_t>(1, n * kBar / total));
  };
  return " " + path + " | " + std::to_string(added + removed) + " " +
         std::string(part(added), '+') + std::string(part(removed), '-') + "\n";
}

int print_stat(Context& context, const std::string& answer) {
  if (context.printed_json(answer)) return 0;
  constexpr size_t kWidestPath = 48;
  const std::vector<Json> files = Json::parse(answer).items();
  size_t path_width = 0;
  int64_t most = 0, added = 0, removed = 0;
  for (const Json& file : files) {
    path_width = std::max(path_width, display_width(printable(file.bytes("path"))));
    added += file.number("added");
    removed += file.number("removed");
    most = std::max(most, file.number("added") + file.number("removed"));
  }
  if (context.terminal.out) path_width = std::min(path_width, kWidestPath);
  std::string text;
  for (const Json& file : files) text += stat_line(file, path_width, most);
  context.print(text + " " + count_of(static_cast<int64_t>(files.size()), "file") + ", +" +
                std::to_string(added) + " -" + std::to_string(removed) + "\n");
  return 0;
}

// Like git's own patches, these leave out repositories inside the repository.
void note_nested(Context& context, const std::string& name) {
  const Json status = Json::parse(context.api().get(context.workspace_path(name, "/status")));
  for (const Json& file : status.items("files")) {
    const std::string path = file.bytes("path");
    if (!path.ends_with('/')) continue;
    context.note(base::escape_for_message(path) +
                 " is a nested repository and not in this patch; copy it: moorage cp " + name +
                 ":" + base::escape_for_message(path) + " DIR");
  }
}

void print_patch(Context& context, const std::string& name) {
  TerminalPatch patch(context);
  const bool raw = !context.terminal.out;
  context.api().download(context.workspace_path(name, "/diff"), [&](std::string_view bytes) {
    raw ? context.print(bytes) : patch.feed(bytes);
  });
  if (!raw) patch.finish();
}

int print_diff(Context& context, const DiffOptions& options) {
  if (options.stat || context.json) {
    print_stat(context, context.api().get(context.workspace_path(options.name, "/diff?stat=1")));
  } else {
    print_patch(context, options.name);
  }
  note_nested(context, options.name);
  return 0;
}

int print_status(Context& context, const std::string& name) {
  const std::string answer = context.api().get(context.workspace_path(name, "/status"));
  if (context.printed_json(answer)) return 0;
  const Json json = Json::parse(answer);
  std::string text;
  for (const Json& file : json.items("files")) {
    text += label_line(file.text("change"), file.bytes("path"), 12);
  }
  if (text.empty()) text = " clean     no changes since the base\n";
  if (json.flag("truncated")) text += " ...       more changes not listed\n";
  context.print(text);
  return 0;
}

}  // namespace

Action diff_command(Options& options) {
  auto diff = std::make_shared<DiffOptions>();
  options.argument({"NAME", "", "The workspace"}, diff->name);
  options.flag({"--stat", "", "Count the changed lines of each file"}, diff->stat);
  return [diff](Context& context) { return print_diff(context, *diff); };
}

Action status_command(Options& options) {
  auto name = std::make_shared<std::string>();
  options.argument({"NAME", "", "The workspace"}, *name);
  return [name](Context& context) { return print_status(context, *name); };
}

}  // namespace moorage::cli
