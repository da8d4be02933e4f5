#include "workspace/repositories/upstream_access.h"

#include <sys/mman.h>

#include <algorithm>

#include "base/error.h"
#include "base/net/url_path.h"
#include "base/os/process.h"
#include "state_db/store.h"
#include "workspace/context/credentials.h"
#include "workspace/context/ssh_command.h"

namespace moorage::workspace {
namespace {

using base::CredentialForm;
using base::CredentialScope;

// From the secret on standard input to a file of git's configuration: $1 the form, $2 the header's
// name, $3 what precedes a password. Only built-in commands have the secret among their arguments.
// Git reads the file as root, so a secret with a quote or a line feed, which could add settings, is
// refused.
constexpr const char* kGitConfig = R"sh(
secret=$(cat) || exit 1
case $1 in
basic) value="Basic $(printf %s "$3$secret" | base64 -w0)" ;;
bearer) value="Bearer $secret" ;;
*) value=$secret ;;
esac
case $secret in '') exit 9 ;; esac
case $value in *[!]\ !#-[^-~]*) exit 9 ;; esac
printf '[http]\n\textraHeader = "%s: %s"\n' "$2" "$value"
)sh";

constexpr int kBadCharacter = 9;

// "/acme/shop" of "ssh://git@host:22/acme/shop.git" and "ssh://git@host/~/acme/shop".
std::string comparable(std::string_view path) {
  if (path.starts_with("/~/")) path.remove_prefix(2);
  if (path.ends_with(".git")) path.remove_suffix(4);
  return std::string(path);
}

// The beginning of the key of a repository at that place (repo_cache/url.h).
std::string place_of(const CredentialScope& scope) {
  if (scope.form != CredentialForm::ssh_key) return "https://" + scope.host;
  const std::string port = scope.port == 22 ? "" : ":" + std::to_string(scope.port);
  return "ssh://" + scope.user + "@" + scope.host + port;
}

bool covers(const CredentialScope& scope, const repo_cache::RepoUrl& url) {
  const std::string place = place_of(scope) + "/";
  if (!url.key.starts_with(place)) return false;
  const auto allows = [&scope](const char* method) {
    return scope.methods.empty() || std::ranges::find(scope.methods, method) != scope.methods.end();
  };
  return base::path_is_below(comparable(url.key.substr(place.size() - 1)),
                             comparable(scope.path)) &&
         allows("GET") && allows("POST");
}

Fd in_memory(const char* name) {
  return Fd(base::check(memfd_create(name, MFD_CLOEXEC), "create a file in memory"));
}

std::string path_of(const Fd& file) { return "/proc/self/fd/" + std::to_string(file.get()); }

}  // namespace

std::optional<UpstreamAccess::Covering> UpstreamAccess::covering(const repo_cache::RepoUrl& url,
                                                                 const Asker& asker) const {
  auto rows = state_db::CredentialTable(context_.store).of(asker.uid);
  if (asker.labels) keep_for_labels(rows, *asker.labels);
  std::optional<Covering> best;
  for (const state_db::CredentialRow& row : rows) {
    for (const CredentialScope& scope : scopes_of({row})) {
      if (!covers(scope, url)) continue;
      if (!best || scope.path.size() > best->scope.path.size()) best = Covering{row, scope};
    }
  }
  // Without a key of the user's own, ssh would log in with root's.
  if (!best && asker.uid != 0 && url.key.starts_with("ssh://")) {
    throw Error(Code::permission_denied, "you have no credential for " + url.display,
                "add your key: moorage credential add NAME --for " + url.key +
                    " --as ssh-key --from-file KEY");
  }
  return best;
}

Fd UpstreamAccess::git_config(const Covering& credential, const Fd& secret) const {
  const CredentialScope& scope = credential.scope;
  Fd config = in_memory("git-config");
  base::ProcessOptions options;
  options.environment = {{"PATH", "/usr/bin:/bin"}, {"LC_ALL", "C"}};
  options.input_fd = secret.get();
  options.output_fd = config.get();
  const std::string form = scope.form == CredentialForm::basic    ? "basic"
                           : scope.form == CredentialForm::bearer ? "bearer"
                                                                  : "header";
  const std::string prefix = scope.user.empty() ? "" : scope.user + ":";
  const auto result =
      base::run_process({"/bin/sh", "-c", kGitConfig, "sh", form, scope.field, prefix}, options);
  if (result.ok()) return config;
  if (result.exit_code == kBadCharacter) {
    throw Error(Code::invalid_argument,
                "the credential " + scope.credential +
                    " has a quote, a backslash or several lines, which a header for git cannot",
                "check the command or file that has it");
  }
  throw Error(Code::internal, "cannot write the credential " + scope.credential + " for git");
}

repo_cache::GitAccess UpstreamAccess::open(const Covering& credential) const {
  repo_cache::GitAccess access;
  Fd secret = secrets_.read(credential.row);
  if (credential.scope.form != CredentialForm::ssh_key) {
    Fd config = git_config(credential, secret);
    // Git would send the header to whatever host it is redirected to.
    access.settings = {"http.followRedirects=false", "include.path=" + path_of(config)};
    access.files.push_back(std::move(config));
    return access;
  }
  SshCommand ssh = ssh_command(context_.options, credential.row.owner_uid, std::move(secret));
  access.ssh_command = "exec";
  for (const auto* words : {&ssh.as_owner, &ssh.argv}) {
    for (const std::string& word : *words) access.ssh_command += " " + shell_word(word);
  }
  access.files.push_back(std::move(ssh.key));
  return access;
}

void UpstreamAccess::note(base::RepoId id, const std::string& name,
                          const repo_cache::RefreshResult& result) {
  if (!result.stale) {
    const std::lock_guard lock(mutex_);
    granted_[id] = std::chrono::steady_clock::now();
    return;
  }
  if (asked_lately(id)) return;
  throw Error(Code::unavailable,
              "cannot ask whether you may still read " + name + ": " + result.stale_reason,
              "try again when upstream answers; existing workspaces remain usable");
}

void UpstreamAccess::note_refusal(base::RepoId id) {
  const std::lock_guard lock(mutex_);
  granted_.erase(id);
}

bool UpstreamAccess::asked_lately(base::RepoId id) {
  const std::lock_guard lock(mutex_);
  const auto found = granted_.find(id);
  return found != granted_.end() &&
         std::chrono::steady_clock::now() - found->second < context_.options.access_memory;
}

}  // namespace moorage::workspace
