#include "workspace/network/git_streams.h"

#include <sys/socket.h>

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/net/url_path.h"
#include "base/os/process.h"
#include "state_db/tables/workspaces.h"
#include "workspace/context/credentials.h"
#include "workspace/context/ssh_command.h"

namespace moorage::workspace {
namespace {

constexpr std::chrono::milliseconds kPatience{5'000};
constexpr std::string_view kOfHome = "/~/";

struct Key {
  state_db::CredentialRow row;
  base::CredentialScope scope;
};

// The key and its place, if this workspace may use it for that path. The egress asks for nothing
// else, unless somebody took it over.
Key find_key(Context& context, const LiveSandbox& sandbox,
             const backends::EgressClient::Stream& wanted) {
  const auto workspace = state_db::WorkspaceTable(context.store).get(sandbox.workspace);
  for (const state_db::CredentialRow& row : credentials_of(context.store, workspace)) {
    if (row.name != wanted.credential) continue;
    for (const base::CredentialScope& scope : scopes_of({row})) {
      const bool fits = scope.form == base::CredentialForm::ssh_key &&
                        base::path_is_below(wanted.path, base::usual_path(scope.path));
      if (fits) return {row, scope};
    }
  }
  throw Error(Code::not_found, "the credential " + wanted.credential + " is not for that any more");
}

void check(const backends::EgressClient::Stream& wanted) {
  const bool known = wanted.service == "git-upload-pack" || wanted.service == "git-receive-pack";
  if (!known || !base::is_plain_path(wanted.path) || wanted.path.find('%') != std::string::npos)
    throw Error(Code::invalid_argument, "this path cannot be sent over ssh");
}

// "git-upload-pack '/acme/shop'", for the shell of the host.
std::string remote_command(const backends::EgressClient::Stream& wanted) {
  const bool of_home = wanted.path.starts_with(kOfHome);
  return wanted.service + " " + shell_word(wanted.path.substr(of_home ? 1 : 0));
}

}  // namespace

// The write end of a pipe for the process to hold.
Fd GitStreams::count(base::SandboxId sandbox) {
  const std::lock_guard lock(mutex_);
  for (auto& [id, pipes] : running_) {
    std::erase_if(pipes, [](const Fd& pipe) { return base::wait_readable(pipe.get(), 0); });
  }
  std::erase_if(running_, [](const auto& one) { return one.second.empty(); });
  auto& pipes = running_[sandbox];
  if (pipes.size() >= kMost)
    throw Error(Code::resource_exhausted, "too many git requests over ssh at once; try again");
  base::Pipe pipe = base::make_pipe();
  pipes.push_back(std::move(pipe.read_end));
  return std::move(pipe.write_end);
}

Fd GitStreams::start(const LiveSandbox& sandbox, const backends::EgressClient::Stream& wanted) {
  check(wanted);
  const Key key = find_key(context_, sandbox, wanted);
  const Fd counted = count(sandbox.sandbox);
  const SshCommand ssh = ssh_command(context_.options, key.row.owner_uid, secrets_.read(key.row));
  int ends[2];
  base::check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), "create a stream");
  Fd ours(ends[0]);
  const Fd theirs(ends[1]);
  std::vector<std::string> argv = ssh.as_owner;
  argv.insert(argv.end(), {program_, "git-over-ssh", wanted.service});
  argv.insert(argv.end(), ssh.argv.begin(), ssh.argv.end());
  argv.insert(argv.end(), {"-oSendEnv=GIT_PROTOCOL", "-p", std::to_string(key.scope.port), "--",
                           key.scope.user + "@" + key.scope.host, remote_command(wanted)});
  base::ProcessOptions options;
  options.environment = {{"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
                         {"LC_ALL", "C"}};
  options.input_fd = theirs.get();
  options.inherit_fds = {ssh.key.get(), counted.get()};
  options.deadline = kPatience;
  const auto result = base::run_process(argv, options);
  if (!result.ok())
    throw Error(Code::internal, "moorage-egress git-over-ssh did not start: " + result.error);
  return ours;
}

void GitStreams::give(const LiveSandbox& sandbox, const std::string& control_path,
                      const backends::EgressClient::Stream& wanted) {
  try {
    backends::EgressClient client(control_path);
    try {
      client.give_stream(wanted.number, start(sandbox, wanted).get(), kPatience);
    } catch (const Error& error) {
      client.refuse_stream(wanted.number, error.message(), kPatience);
    }
  } catch (const Error& error) {
    base::log(base::LogLevel::warning, "network.no_stream",
              {{"sb", sandbox.sandbox}, {"error", error.message()}});
  }
}

}  // namespace moorage::workspace
