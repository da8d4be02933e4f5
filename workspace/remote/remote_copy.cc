#include "workspace/remote/remote_copy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "backends/remote/link_client.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/parts.h"
#include "layers/inside_path.h"
#include "layers/sandbox_mounts.h"
#include "state_db/tables/execs.h"
#include "workspace/remote/at_rest.h"

namespace moorage::workspace {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kQuery{1'000};
constexpr milliseconds kFetch{10'000};
constexpr milliseconds kSend{30'000};
constexpr size_t kMaxNoteBytes = 1 << 20;
constexpr char kEnd = '\0';

backends::LinkClient link_of(const LiveSandbox& running) {
  return backends::LinkClient(running.endpoint);
}

std::string note_of(const Options& options, base::SandboxId sandbox) {
  return options.sandbox_directory(sandbox.str()) + "/unsent";
}

// Each path once, in their order.
std::vector<std::string> noted_in(const std::string& note) {
  std::vector<std::string> paths;
  const std::string text = base::read_file_if_exists(note, kMaxNoteBytes).value_or("");
  for (const std::string_view part : base::split(text, kEnd)) {
    if (!part.empty() && std::find(paths.begin(), paths.end(), part) == paths.end())
      paths.emplace_back(part);
  }
  return paths;
}

void add_to_note(const std::string& note, const std::vector<std::string>& paths) {
  std::string text;
  for (const std::string& path : noted_in(note)) text += path + kEnd;
  for (const std::string& path : paths) text += path + kEnd;
  if (text.size() > kMaxNoteBytes ||
      static_cast<size_t>(std::count(text.begin(), text.end(), kEnd)) > backends::kMaxChangedPaths)
    throw Error(Code::unavailable, "too many changes wait for the other machine",
                "try again once it has them");
  base::write_file(note, text);
}

// Of what these paths name now. An applied pack gives a path another inode or change time.
std::vector<std::pair<uint64_t, int64_t>> marks_of(const LiveSandbox& running,
                                                   const std::vector<std::string>& paths) {
  const layers::ActiveMounts& mounts = running.mounted->mounts;
  const std::vector<layers::InsideRoot> roots{{layers::kTreePlace, mounts.tree.get()},
                                              {layers::kHomePlace, mounts.home.get()}};
  std::vector<std::pair<uint64_t, int64_t>> marks;
  for (const std::string& path : paths) {
    struct stat status {};
    const layers::InsidePlace place = layers::find_inside(roots, path, false);
    try {
      const base::Fd file = base::open_in_root(place.root, place.path, O_PATH | O_NOFOLLOW);
      base::check(fstat(file.get(), &status), "inspect " + path);
    } catch (const Error& error) {
      if (error.code() != Code::not_found) throw;
    }
    marks.emplace_back(status.st_ino,
                       status.st_ctim.tv_sec * 1'000'000'000 + status.st_ctim.tv_nsec);
  }
  return marks;
}

std::string seconds_text(uint64_t ms) {
  return ms < 10'000 ? std::to_string(ms / 1000) + "." + std::to_string(ms % 1000 / 100) + " s"
                     : std::to_string(ms / 1000) + " s";
}

}  // namespace

std::string RemoteCopy::age(const LiveSandbox& running, const std::string& why) {
  std::optional<uint64_t> behind_ms;
  try {
    const base::LinkStatus status = link_of(running).status(kQuery);
    if (status.behind_ms > 0) behind_ms = status.behind_ms;
  } catch (const Error&) {
    // Without an answer the age is unknown, which the text says.
  }
  if (!behind_ms) return "the files here may be behind the other machine: " + why;
  return "the files here are " + seconds_text(*behind_ms) + " behind the other machine: " + why;
}

std::string RemoteCopy::refresh(base::WorkspaceId workspace) {
  const auto known = context_.live.without_mounts(workspace);
  if (!known || !known->remote) return {};
  try {
    link_of(*known).sync(kFetch);
    const auto running = context_.live.running(workspace);
    if (running && running->sandbox == known->sandbox) incoming_.apply(*running);
    return {};
  } catch (const Error& error) {
    return age(*known, error.message());
  }
}

void require_held_here(Context& context, const state_db::WorkspaceRow& row) {
  const auto running = context.live.without_mounts(row.id);
  if (!running || !running->remote) return;
  std::string held;
  try {
    held = link_of(*running).status(kQuery).network;
  } catch (const Error&) {
    // Its link is being replaced. A provider that holds the rules gets new ones at the next start.
  }
  if (held.empty()) return;
  throw Error(
      Code::conflict,
      "the network of " + row.name + " is " + held + "; such rules cannot change while it runs",
      "moorage stop " + row.name + ", then repeat the change");
}

std::optional<RemoteView> RemoteCopy::view(base::WorkspaceId workspace) {
  const auto running = context_.live.without_mounts(workspace);
  if (!running || !running->remote) return std::nullopt;
  RemoteView view;
  try {
    const base::LinkStatus status = link_of(*running).status(kQuery);
    view.connected = status.connected;
    if (status.behind_ms > 0) view.behind_ms = status.behind_ms;
    view.overlay = status.overlay;
    view.limits = status.limits;
    view.network = status.network;
    view.restored = status.restored;
    view.kept_ms = status.kept_ms;
    view.reason = status.reason;
  } catch (const Error& error) {
    view.reason = error.message();
  }
  view.waiting_packs = incoming_.waiting(running->sandbox);
  view.waiting_ends = incoming_.waiting_ends(running->sandbox);
  if (const std::string trouble = incoming_.trouble(running->sandbox); !trouble.empty())
    view.reason = trouble;
  return view;
}

// ---- changes through the API

RemoteCopy::Change RemoteCopy::begin(base::WorkspaceId workspace,
                                     const std::vector<std::string>& paths) {
  Change change;
  auto running = context_.live.running(workspace);
  if (!running) require_at_rest(context_, workspace);
  if (!running || !running->remote) return change;
  const base::LinkStatus status = link_of(*running).status(kQuery);
  if (!status.connected || !status.runs) {
    throw Error(Code::unavailable,
                "its files cannot be changed now: " +
                    (status.reason.empty() ? "the other machine is not reached" : status.reason),
                "nothing was changed; try again once the machine is reached");
  }
  incoming_.apply(*running);  // older than this change
  change.paused_ = incoming_.pause(workspace, "changing its files");
  change.note_ = note_of(context_.options, running->sandbox);
  add_to_note(change.note_, paths);
  change.running_ = std::move(running);
  return change;
}

void RemoteCopy::finish(Change change, const std::vector<std::string>& paths) {
  if (!change.is_remote()) return;
  const LiveSandbox& running = *change.running_;
  try {
    link_of(running).changed(noted_in(change.note_), kSend);
    if (unlink(change.note_.c_str()) < 0) base::throw_errno("remove " + change.note_);
    if (state_db::ExecTable(context_.store).running(running.sandbox).empty()) return;
    // A command may have changed the same file before the machine had this change, and what it
    // wrote is on its way: then the machine gets it back, so that both have the same.
    const auto before = marks_of(running, paths);
    change.paused_.unlock();
    link_of(running).sync(kSend);
    incoming_.apply(running);
    if (marks_of(running, paths) != before) link_of(running).changed(paths, kSend);
  } catch (const Error& error) {
    throw Error(Code::unavailable,
                "the change is here, but not yet on the other machine: " + error.message(),
                "it is sent when the machine is reached");
  }
}

void RemoteCopy::send_noted(const LiveSandbox& known) {
  const std::string note = note_of(context_.options, known.sandbox);
  const auto guard = incoming_.pause(known.workspace, "sending changes of its files", kQuery);
  const auto paths = noted_in(note);
  if (!paths.empty()) link_of(known).changed(paths, kSend);
  if (unlink(note.c_str()) < 0 && errno != ENOENT) base::throw_errno("remove " + note);
}

void RemoteCopy::send_later(const LiveSandbox& running) {
  const std::lock_guard lock(mutex_);
  if (!sending_.insert(running.sandbox).second) return;
  senders_.submit({.user = running.owner, .subject = running.workspace.str()}, [this, running] {
    try {
      send_noted(running);
    } catch (const Error& error) {  // the note stays; this may be tried every second
      base::log(base::LogLevel::debug, "remote.not_sent",
                {{"sb", running.sandbox}, {"error", error.message()}});
    }
    const std::lock_guard ending(mutex_);
    sending_.erase(running.sandbox);
  });
}

void RemoteCopy::tick() {
  for (const LiveSandbox& running : context_.live.all()) {
    if (running.remote && base::path_exists(note_of(context_.options, running.sandbox)))
      send_later(running);
  }
}

}  // namespace moorage::workspace
