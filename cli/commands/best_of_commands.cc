// `best-of`: several attempts at one thing side by side; and `compare`. The daemon runs the
// attempts; the command only follows and may end at any time.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "base/os/fd.h"
#include "base/os/files.h"
#include "cli/client/backoff.h"
#include "cli/commands.h"
#include "cli/commands/patch_output.h"
#include "cli/views/progress.h"
#include "cli/views/workspace_view.h"

namespace moorage::cli {
namespace {

constexpr int kPollPause_ms = 300;
constexpr int kInterrupted = 130;

struct Wanted {
  std::string name;
  std::string count;
  std::string each;
  std::string patches;
  std::string test;
  std::string timeout;
  std::string promote;
  std::string parallel;
  bool keep = false;
  bool detach = false;
  bool cancel = false;

  void declare(Options& options) {
    options.argument({"NAME", "", "The workspace; or bo_N to follow that best-of"}, name);
    options.value({"--count", "N", "Number of attempts; default: one for each patch"}, count);
    options.value({"--each", "CMD", "Command for each fork; {i} is the attempt's number"}, each);
    options.value({"--patches", "DIR", "Apply one patch file of DIR in each fork"}, patches);
    options.value({"--test", "CMD", "Command that decides: an attempt passes if it exits 0"}, test);
    options.value({"--timeout", "TIME", "Time limit of each command, like 5m"}, timeout);
    options.value({"--promote", "WHICH", "first-passing or smallest-diff; default: none"}, promote);
    options.value({"--parallel", "N", "Attempts at once; default: number of CPUs"}, parallel);
    options.flag({"--keep", "", "Leave their sandboxes running"}, keep);
    options.flag({"-d,--detach", "", "Print its id and leave it running"}, detach);
    options.flag({"--cancel", "", "Cancel bo_N; its forks are kept"}, cancel);
  }
};

bool is_best_of_id(const std::string& text) {
  return text.starts_with("bo_") && text.find_first_not_of("0123456789", 3) == std::string::npos &&
         text.size() > 3;
}

volatile std::sig_atomic_t interrupted = 0;

// Ctrl-C ends this program alone; the attempts go on.
class Interrupts {
 public:
  Interrupts() {
    interrupted = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { interrupted = 1; };
    base::check(sigaction(SIGINT, &action, &before_), "catch Ctrl-C");
  }
  ~Interrupts() { sigaction(SIGINT, &before_, nullptr); }
  Interrupts(Interrupts&&) = delete;

 private:
  struct sigaction before_ {};
};

struct PatchFile {
  std::string name;
  std::string path;
  uint64_t bytes = 0;
};

// The files of a directory, by name, without hidden files and backups (~).
std::vector<PatchFile> patches_in(const std::string& directory) {
  std::vector<PatchFile> files;
  for (const std::string& name : base::list_directory(directory)) {
    const std::string path = directory + "/" + name;
    if (name.starts_with('.') || name.ends_with('~')) continue;
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error)) continue;
    files.push_back({name, path, std::filesystem::file_size(path)});
  }
  if (files.empty()) {
    throw Error(Code::invalid_argument, "no patch files in " + directory,
                "put one patch in each file, as git diff or git format-patch write it");
  }
  return files;
}

JsonObject request_of(const Wanted& wanted) {
  JsonObject body;
  if (!wanted.count.empty()) body.add("count", parse_count(wanted.count, "--count"));
  if (!wanted.each.empty()) body.add_bytes("each", {"/bin/sh", "-c", wanted.each});
  if (!wanted.test.empty()) body.add_bytes("test", {"/bin/sh", "-c", wanted.test});
  if (!wanted.timeout.empty())
    body.add("timeout_ms", parse_duration_ms(wanted.timeout, "--timeout"));
  if (!wanted.promote.empty()) body.add("promote", wanted.promote);
  if (!wanted.parallel.empty()) body.add("parallel", parse_count(wanted.parallel, "--parallel"));
  if (wanted.keep) body.add("keep", true);
  return body;
}

std::string send_patches(Context& context, const std::string& target, const Wanted& wanted) {
  const auto files = patches_in(wanted.patches);
  std::vector<JsonObject> list;
  for (const auto& file : files) {
    list.emplace_back().add_bytes("name", file.name).add("bytes", static_cast<int64_t>(file.bytes));
  }
  const std::string json = request_of(wanted).add("patches", list).str();
  size_t json_sent = 0;
  size_t at = 0;
  uint64_t sent = 0;  // of the current file
  Fd open;
  const auto next = [&](char* buffer, size_t room) -> size_t {
    if (json_sent < json.size()) {
      const size_t copied = json.copy(buffer, room, json_sent);
      json_sent += copied;
      return copied;
    }
    for (; at < files.size(); ++at, sent = 0, open = Fd()) {
      if (!open) open = base::open_file(files[at].path, O_RDONLY);
      const auto left = static_cast<size_t>(files[at].bytes - sent);
      if (left == 0) continue;
      const ssize_t got =
          base::check(::read(open.get(), buffer, std::min(room, left)), "read " + files[at].path);
      if (got == 0) throw Error(Code::conflict, files[at].path + " shrank while it was read");
      sent += static_cast<uint64_t>(got);
      return static_cast<size_t>(got);
    }
    return 0;
  };
  return context.api().upload("POST", target + "?json_bytes=" + std::to_string(json.size()), next);
}

std::string attempt_name(const Json& attempt) {
  return attempt.text("number") + "/" + attempt.text("of");
}

Cell result_cell(const Json& attempt) {
  const std::string state = attempt.text("state");
  const std::string reason = attempt.text("reason");
  const Colour colour = state == "passed"                                ? Colour::green
                        : state == "failed"                              ? Colour::red
                        : state == "interrupted" || state == "cancelled" ? Colour::yellow
                                                                         : Colour::plain;
  return {state + (reason.empty() ? "" : ": " + reason), colour};
}

std::string diff_text(const Json& attempt) {
  if (!attempt.has("diff")) return "-";
  const Json diff = attempt.at("diff");
  return count_of(diff.number("files"), "file") + " +" + diff.text("added") + " -" +
         diff.text("removed") + ", " + size_text(diff, "bytes");
}

std::string last_line(const std::string& tail) {
  size_t end = tail.find_last_not_of("\r\n \t");
  if (end == std::string::npos) return {};
  const size_t begin = tail.find_last_of('\n', end) + 1;  // 0 without a line end
  return tail.substr(begin, end + 1 - begin);
}

void print_attempts(Context& context, const Json& best_of) {
  Table table(
      {"ATTEMPT", "FORK", shrinks("RESULT"), right("TIME"), "DIFF", shrinks("LAST OUTPUT")});
  for (const Json& attempt : best_of.items("attempts")) {
    const bool timed = attempt.has("took_ms");
    const bool chosen = best_of.number("chosen") == attempt.number("number");
    table.add(
        {Cell(attempt_name(attempt) + (chosen ? " *" : ""), chosen ? Colour::bold : Colour::plain),
         attempt.text("name", "-"), result_cell(attempt),
         timed ? format_took(attempt.number("took_ms")) : "-", diff_text(attempt),
         last_line(attempt.text("tail"))});
  }
  context.print_table(table);
}

Json attempt_of(const Json& best_of, int64_t number) {
  for (const Json& attempt : best_of.items("attempts")) {
    if (attempt.number("number") == number) return attempt;
  }
  return {};
}

int64_t passed_in(const Json& best_of) {
  int64_t passed = 0;
  for (const Json& attempt : best_of.items("attempts")) passed += attempt.text("state") == "passed";
  return passed;
}

// The snapshot that its promotion took, by its time: the answer of the best-of lacks it.
std::string previous_state(Context& context, const Json& best_of) {
  const std::string text = "its previous state is ";
  try {
    const std::string target = context.workspace_path(best_of.text("workspace"), "/snapshots");
    for (const Json& snapshot : Json::parse(context.api().get(target)).items("snapshots")) {
      const std::string created = snapshot.text("created_at");
      if (snapshot.text("cause") == "promote" && created >= best_of.text("created_at") &&
          created <= best_of.text("ended_at"))
        return text + "snapshot " + snapshot.text("id");
    }
  } catch (const Error&) {
    // The best-of has its result without this.
  }
  return text + "a snapshot: moorage snapshots " + best_of.text("name");
}

void print_promotion(Context& context, const Json& best_of) {
  const std::string name = best_of.text("name");
  const std::string fork = attempt_of(best_of, best_of.number("chosen")).text("name");
  if (best_of.text("promotion") == "done") {
    context.print_label("promoted", name + " now has the contents of " + fork + "; " +
                                        previous_state(context, best_of));
  } else if (best_of.text("promotion") == "refused") {
    context.print_label("refused", fork + " was not promoted: " + best_of.text("promotion_note") +
                                       "   by hand: moorage promote " + fork + " --kill");
  } else if (passed_in(best_of) > 0) {
    context.print_label("choose", "moorage compare FORK FORK, then: moorage promote FORK");
  }
}

void print_forks(const Context& context, const Json& best_of) {
  std::string kept, deleted;
  for (const Json& attempt : best_of.items("attempts")) {
    if (!attempt.has("name")) continue;
    std::string& names = attempt.flag("kept") ? kept : deleted;
    names += (names.empty() ? "" : ", ") + attempt.text("name");
  }
  if (!kept.empty()) context.print_label("kept", kept + "; delete one: moorage rm FORK");
  if (!deleted.empty())
    context.print_label("deleted", deleted + "; restore one: moorage undelete FORK");
}

void print_end(Context& context, const Json& best_of) {
  const std::string state = best_of.text("state");
  const std::string reason = best_of.text("reason");
  print_attempts(context, best_of);
  context.print_label(state, best_of.text("id") + (reason.empty() ? "" : "   " + reason));
  print_promotion(context, best_of);
  if (state != "running" && state != "preparing") print_forks(context, best_of);
}

// "3 of 5 ended, 1 passed; 2/5 testing, 4/5 applying"
std::string progress_text(const Json& best_of) {
  int64_t ended = 0;
  int64_t all = 0;
  std::string under_way;
  for (const Json& attempt : best_of.items("attempts")) {
    const std::string state = attempt.text("state");
    ++all;
    if (state == "applying" || state == "testing") {
      under_way += (under_way.empty() ? "; " : ", ") + attempt_name(attempt) + " " + state;
    } else if (state != "waiting") {
      ++ended;
    }
  }
  return std::to_string(ended) + " of " + std::to_string(all) + " ended, " +
         std::to_string(passed_in(best_of)) + " passed" + under_way;
}

// Survives restarts of the daemon. Returns nothing after Ctrl-C.
std::optional<std::string> follow(Context& context, const std::string& id) {
  const Interrupts interrupts;
  Progress progress(context);
  Backoff backoff(reconnect_patience());
  while (interrupted == 0) {
    try {
      std::string answer = context.api().get("/v1/best-of/" + id);
      backoff.reset();
      const Json best_of = Json::parse(answer);
      const std::string state = best_of.text("state");
      if (state != "running" && state != "preparing") return answer;
      progress.update(id, -1, progress_text(best_of));
    } catch (const Error& error) {
      if (interrupted != 0) break;
      if (!is_lost(error) || !backoff.wait()) throw;
      continue;
    }
    ::poll(nullptr, 0, kPollPause_ms);
  }
  return std::nullopt;
}

int exit_code_of(const Json& best_of) {
  return passed_in(best_of) > 0 && best_of.text("promotion") != "refused" ? 0 : 1;
}

int follow_to_end(Context& context, const std::string& id) {
  const auto answer = follow(context, id);
  if (!answer) {
    context.note(id + " keeps running; follow it: moorage best-of " + id +
                 "   end it: moorage best-of " + id + " --cancel");
    return kInterrupted;
  }
  const Json best_of = Json::parse(*answer);
  context.json ? context.print_json(*answer) : print_end(context, best_of);
  return exit_code_of(best_of);
}

int start(Context& context, const Wanted& wanted) {
  if (!wanted.patches.empty() && !wanted.each.empty())
    throw Error(Code::invalid_argument, "--each and --patches exclude each other");
  if (wanted.each.empty() && wanted.patches.empty()) {
    throw Error(Code::invalid_argument, "best-of needs --each or --patches",
                "moorage best-of " + wanted.name +
                    " --count 5 --each 'agent --seed {i}' --test "
                    "'make check', or --patches DIR");
  }
  if (!wanted.each.empty() && wanted.count.empty()) {
    throw Error(Code::invalid_argument, "--each needs --count, the number of attempts",
                "moorage best-of " + wanted.name + " --count 5 --each " +
                    join_command({wanted.each}) + " --test CMD");
  }
  const std::string target = context.workspace_path(wanted.name, "/best-of");
  const std::string answer =
      wanted.patches.empty()
          ? context.api().send("POST", target, request_of(wanted).str(), {.slow = true})
          : send_patches(context, target, wanted);
  const Json best_of = Json::parse(answer);
  const std::string id = best_of.text("id");
  if (wanted.detach) {
    const std::string line = context.terminal.out
                                 ? label_line(id, "started; follow it: moorage best-of " + id)
                                 : id + "\n";
    context.json ? context.print_json(answer) : context.print(line);
    return 0;
  }
  if (!context.json) {
    context.note(id + ": " + count_of(best_of.number("count"), "attempt") + ", " +
                 best_of.text("parallel") + " at once; Ctrl-C leaves it running");
  }
  return follow_to_end(context, id);
}

void list(Context& context, const std::string& name) {
  const auto answer =
      context.parse_or_print(context.api().get(context.workspace_path(name, "/best-of")));
  if (!answer) return;
  Table table({"ID", "STATE", right("ATTEMPTS"), right("PASSED"), "PROMOTED", shrinks("TEST")});
  for (const Json& row : answer->items("best_of")) {
    const bool promoted = row.text("promotion") == "done";
    table.add({row.text("id"), row.text("state"), row.text("count"), std::to_string(passed_in(row)),
               promoted ? attempt_of(row, row.number("chosen")).text("name") : "-",
               join_command(row.byte_list("test"))});
  }
  if (table.empty()) {
    context.print_label(
        "none", "start one: moorage best-of " + name + " --count 5 --each 'CMD {i}' --test CMD");
    return;
  }
  context.print_table(table);
}

int best_of(Context& context, const Wanted& wanted) {
  if (!is_best_of_id(wanted.name)) {
    if (wanted.cancel)
      throw Error(Code::invalid_argument, "--cancel needs the id of a best-of",
                  "list them: moorage best-of " + wanted.name);
    const bool plain = wanted.each.empty() && wanted.patches.empty() && wanted.test.empty() &&
                       wanted.count.empty() && wanted.promote.empty();
    if (!plain) return start(context, wanted);
    list(context, wanted.name);
    return 0;
  }
  if (!wanted.cancel) return follow_to_end(context, wanted.name);
  const std::string answer = context.api().send("POST", "/v1/best-of/" + wanted.name + "/cancel");
  context.json ? context.print_json(answer)
               : context.print_label("cancelled",
                                     wanted.name + "   ending its commands; its forks are kept");
  return 0;
}

std::string last_text(const Json& side) {
  if (!side.has("last")) return "no command yet";
  const Json last = side.at("last");
  const std::string how =
      last.has("exit_code") ? "exit " + last.text("exit_code") : last.text("state");
  return join_command(last.byte_list("argv")) + "   " + how +
         (last.has("took_ms") ? ", " + format_took(last.number("took_ms")) : "");
}

struct Two {
  std::string from;
  std::string to;
  bool patch = false;

  void declare(Options& options) {
    options.argument({"FROM", "NAME", "A workspace"}, from);
    options.argument({"TO", "NAME", "Another workspace of the same repository"}, to);
    options.flag({"--patch", "", "Print the patch from the first to the second"}, patch);
  }
};

int compare(Context& context, const Two& two) {
  const std::string target =
      context.workspace_path(two.from, "/compare?with=" + percent_encode(two.to));
  if (two.patch) return print_patch(context, target + "&patch=1", two.to);
  const auto json = context.parse_or_print(context.api().get(target));
  if (!json) return 0;
  for (const char* side : {"from", "to"})
    context.print_label(json->text(std::string(side) + ".name"), last_text(json->at(side)));
  Table table({shrinks("FILE"), "CHANGE", "LINES", right("BYTES"), right("")});
  for (const Json& file : json->items("files")) {
    table.add({file.bytes("path"), file.text("change"),
               file.has("left_out")  ? "not in a patch"
               : file.flag("binary") ? "binary"
                                     : "+" + file.text("added") + " -" + file.text("removed"),
               size_text(file, "bytes_from"), "-> " + size_text(file, "bytes_to")});
  }
  if (table.empty()) {
    context.print_label("same", "no differences except in ignored files");
    return 0;
  }
  context.print_table(table);
  context.print_label("from " + json->text("from.name"),
                      "to " + json->text("to.name") + ": " +
                          count_of(json->number("total.files"), "file") + ", +" +
                          json->text("total.added") + " -" + json->text("total.removed") +
                          "   moorage compare " + two.from + " " + two.to + " --patch");
  return 0;
}

}  // namespace

Action best_of_command(Options& options) { return run_with<Wanted>(options, best_of); }
Action compare_command(Options& options) { return run_with<Two>(options, compare); }

}  // namespace moorage::cli
