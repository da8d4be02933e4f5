#include "workspace/best_of/best_of.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "base/crash_point.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "state_db/store.h"
#include "workspace/access/keyed_request.h"
#include "workspace/context/free_space.h"
#include "workspace/verbs/requests.h"

namespace moorage::workspace {
namespace {

using state_db::BestOfRow;
using state_db::BestOfTable;

MOORAGE_CRASH_POINT(after_intent, "best_of.after_intent");
MOORAGE_CRASH_POINT(after_patches, "best_of.after_patches");
MOORAGE_CRASH_POINT(after_outcome, "best_of.after_outcome");

constexpr size_t kMaxLabelBytes = 255;

[[noreturn]] void refuse(const std::string& message, const std::string& hint = {}) {
  throw Error(Code::invalid_argument, message, hint);
}

void check_command(const std::vector<std::string>& argv, const char* what) {
  if (argv.empty()) return;
  ExecRequest request;
  request.argv = argv;
  try {
    check_request(request);
  } catch (Error& error) {
    throw error.add_context(what);
  }
}

uint32_t count_of(const BestOfRequest& request) {
  return request.count > 0 ? request.count : static_cast<uint32_t>(request.patches.size());
}

// Names an unnamed file, after syncing its contents.
void keep_patches(const std::string& path, const base::Fd& file) {
  const std::string directory = path.substr(0, path.rfind('/'));
  base::make_directories(directory);
  base::sync_file(file.get(), "the patches");
  const std::string open = "/proc/self/fd/" + std::to_string(file.get());
  base::check(linkat(AT_FDCWD, open.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW),
              "save the patches");
  base::sync_directory(directory);
  base::sync_directory(directory.substr(0, directory.rfind('/')));
}

BestOfRow find(Context& context, const Caller& caller, base::BestOfId id, Right right) {
  auto row = BestOfTable(context.store).find(id);
  const auto workspace = row ? state_db::WorkspaceTable(context.store).find(row->wanted.workspace)
                             : std::optional<state_db::WorkspaceRow>();
  if (!workspace || workspace->purged_wall_ms || !sees(caller, *workspace)) {
    throw Error(Code::not_found, "there is no best-of " + id.str(),
                "moorage best-of NAME lists the runs of a workspace");
  }
  find_with_deleted(context.store, caller, workspace->id.str(), right);
  return *std::move(row);
}

BestOfView view(Context& context, BestOfRow row) {
  BestOfView view;
  state_db::WorkspaceTable workspaces(context.store);
  state_db::ExecTable execs(context.store);
  view.workspace_name = workspaces.get(row.wanted.workspace).name;
  for (auto& attempt : BestOfTable(context.store).attempts(row.id)) {
    AttemptView one;
    if (attempt.workspace) {
      const auto fork = workspaces.get(attempt.workspace);
      one.fork_name = fork.name;
      one.fork_is_there = fork.state != state_db::WorkspaceState::deleting &&
                          fork.state != state_db::WorkspaceState::deleted;
    }
    if (attempt.each_exec) one.each = execs.find(attempt.each_exec);
    if (attempt.test_exec) one.test = execs.find(attempt.test_exec);
    one.row = std::move(attempt);
    view.attempts.push_back(std::move(one));
  }
  view.row = std::move(row);
  return view;
}

}  // namespace

uint64_t BestOfRequest::patch_bytes() const {
  uint64_t sum = 0;
  for (const auto& patch : patches) sum += patch.bytes;
  return sum;
}

void check_request(const BestOfRequest& request) {
  const bool has_each = !request.each.empty();
  if (has_each == !request.patches.empty()) {
    refuse(has_each ? "give either a command for each attempt or patches, not both"
                    : "nothing to attempt: there is neither a command nor a patch",
           "set each or patches");
  }
  if (request.test.empty())
    refuse("a test is missing", "set test to a command that exits with 0 on success");
  check_command(request.each, "each");
  check_command(request.test, "test");
  const uint32_t count = count_of(request);
  if (!request.patches.empty() && count != request.patches.size()) {
    refuse("count is " + std::to_string(count) + ", but there are " +
               std::to_string(request.patches.size()) + " patches",
           "each patch is one attempt: omit count");
  }
  if (count < 1 || count > kMaxForks) {
    refuse(std::to_string(count) + " attempts requested; 1 to " + std::to_string(kMaxForks) +
           " are allowed");
  }
  for (const auto& patch : request.patches) {
    const std::string name = "patch " + base::escape_for_message(patch.name);
    if (patch.name.size() > kMaxLabelBytes) refuse("the name of a patch is longer than 255 bytes");
    if (patch.bytes == 0) refuse(name + " is empty");
    if (patch.bytes > kMaxPatchBytes)
      refuse(name + " has " + std::to_string(patch.bytes) + " bytes; the limit is 16 MiB");
  }
  if (request.patch_bytes() > kMaxAllPatchBytes)
    refuse("the patches exceed 128 MiB in total", "try fewer at a time");
  if (request.parallel > kMaxParallel)
    refuse("at most " + std::to_string(kMaxParallel) + " attempts can run in parallel");
  if (request.timeout_ms < 0 || request.timeout_ms > kMaxAttemptTimeout_ms)
    refuse("the timeout must be 0 to 30 days");
}

base::Fd BestOf::begin_patches(const Caller& caller, const std::string& name,
                               const BestOfRequest& request) {
  const auto row = find_workspace(context_.store, caller, name, Right::write);
  check_request(request);
  leases_.check(caller, row);
  require_room(context_.options, "cannot receive the patches", request.patch_bytes());
  const std::string directory = context_.options.store + "/workspaces/" + row.id.str();
  base::make_directories(directory);
  return base::open_file(directory, O_TMPFILE | O_RDWR, 0600);
}

BestOfView BestOf::start(const Caller& caller, const std::string& name,
                         const BestOfRequest& request, base::Fd patches) {
  const auto found = find_workspace(context_.store, caller, name, Right::write);
  check_request(request);
  state_db::NewBestOf wanted;
  wanted.workspace = found.id;
  wanted.owner_uid = caller.uid;
  wanted.owner_gids = caller.gids;
  if (const auto* claim = caller.claim_of(found.id)) {
    wanted.lease = claim->generation;
    wanted.lease_secret_hash = claim->secret_hash;
  }
  wanted.each = request.each;
  wanted.test = request.test;
  wanted.timeout_ms = request.timeout_ms;
  wanted.promote = request.promote;
  wanted.keep = request.keep;
  const uint32_t usual = std::max(1U, std::thread::hardware_concurrency());
  wanted.parallel = request.parallel > 0 ? request.parallel : std::min(usual, kMaxParallel);
  wanted.request_hash = base::sha256_hex(found.id.str() + " " + request.body_hash);
  if (!request.idempotency_key.empty()) wanted.idempotency_key = request.idempotency_key;
  wanted.attempts.resize(count_of(request));
  uint64_t offset = 0;
  for (size_t n = 0; n < request.patches.size(); ++n) {
    wanted.attempts[n] = {request.patches[n].name, offset, request.patches[n].bytes};
    offset += request.patches[n].bytes;
  }
  const auto guard = context_.locks.lock(beginning_lock(found.id), "best-of");
  BestOfTable table(context_.store);
  if (const auto made = table.find_made(wanted)) {
    if (made->state == state_db::BestOfState::preparing)
      refuse_unsettled(caller, made->id.str() + " is still creating its forks");
    return view(context_, *made);
  }
  leases_.check(caller, found);
  require_ready(found);
  const auto row = table.begin(wanted);
  after_intent.pass();
  const std::string path = patches_path(context_.options, found.id, row.id);
  try {
    if (row.patch_bytes > 0) keep_patches(path, patches);
    after_patches.pass();
    driver_.make_forks(row, caller);
  } catch (Error& error) {
    if (row.patch_bytes > 0) base::remove_tree(path);
    table.fail_preparing(row.id, error.message());
    throw error.add_context("no attempt on " + found.name + " was started");
  }
  after_outcome.pass();
  driver_.request(row.id);
  base::log(base::LogLevel::info, "best_of.started",
            {{"ws", found.id}, {"bo", row.id}, {"attempts", wanted.attempts.size()}});
  return view(context_, table.get(row.id));
}

std::vector<BestOfView> BestOf::list(const Caller& caller, const std::string& name) {
  const auto row = find_with_deleted(context_.store, caller, name, Right::read);
  std::vector<BestOfView> views;
  for (auto& one : BestOfTable(context_.store).of_workspace(row.id))
    views.push_back(view(context_, std::move(one)));
  return views;
}

BestOfView BestOf::show(const Caller& caller, base::BestOfId id) {
  return view(context_, find(context_, caller, id, Right::read));
}

// The workspace's lease, and those of all forks whose commands the cancel ends.
std::vector<Leases::Writing> BestOf::cancel_rights(const Caller& caller, const BestOfRow& row) {
  state_db::WorkspaceTable table(context_.store);
  std::vector<Leases::Writing> writing;
  writing.push_back(leases_.write(caller, table.get(row.wanted.workspace)));
  for (const auto& attempt : BestOfTable(context_.store).attempts(row.id)) {
    if (!attempt.is_under_way() || !attempt.workspace) continue;
    writing.push_back(leases_.write(caller.beside(), table.get(attempt.workspace)));
  }
  return writing;
}

BestOfView BestOf::cancel(const Caller& caller, base::BestOfId id) {
  const auto row = find(context_, caller, id, Right::write);
  BestOfTable table(context_.store);
  const auto writing = cancel_rights(caller, row);
  const bool cancels = context_.store.transaction([&] {
    const bool ends = table.request_cancel(id);
    if (ends) join_key(context_.store, caller, id.str());
    return ends;
  });
  if (!cancels) {
    throw Error(Code::conflict,
                id.str() + " has ended: " + std::string(state_db::state_name(table.get(id).state)));
  }
  driver_.request(id);
  return view(context_, table.get(row.id));
}

}  // namespace moorage::workspace
