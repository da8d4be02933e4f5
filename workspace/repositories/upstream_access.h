// With whose credential git asks upstream. A repository that one of a user's credentials covers is
// private: its mirror is that user's alone, and the user shows access again whenever upstream has
// not confirmed it for a while. Others have no credential, so upstream refuses them.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/ids.h"
#include "base/net/request_policy.h"
#include "repo_cache/git_access.h"
#include "repo_cache/repo_cache.h"
#include "state_db/tables/credentials.h"
#include "workspace/context/context.h"
#include "workspace/context/secret_reader.h"

namespace moorage::workspace {

struct Asker {
  uint32_t uid = 0;
  // Of the workspace that it is for: a credential may be only for some. Empty: any of the user's.
  std::optional<std::map<std::string, std::string>> labels{};
};

class UpstreamAccess {
 public:
  explicit UpstreamAccess(Context& context) : context_(context), secrets_(context.options) {}

  struct Covering {
    state_db::CredentialRow row;
    base::CredentialScope scope;
  };
  // The user's credential for that repository, by the longest path. nullopt: ask as anybody; over
  // ssh only root may, others get permission_denied.
  std::optional<Covering> covering(const repo_cache::RepoUrl& url, const Asker& asker) const;
  // Reads the secret now. Throws the reason if that fails.
  repo_cache::GitAccess open(const Covering& credential) const;

  // What upstream answered to the owner of a private mirror. A mirror that is `stale`, because
  // upstream did not answer, may be used for a while; then this throws unavailable.
  void note(base::RepoId id, const std::string& name, const repo_cache::RefreshResult& result);
  void note_refusal(base::RepoId id);
  bool asked_lately(base::RepoId id);

 private:
  Fd git_config(const Covering& credential, const Fd& secret) const;

  Context& context_;
  const SecretReader secrets_;
  std::mutex mutex_;
  // In memory, so a daemon that starts asks again.
  std::map<base::RepoId, std::chrono::steady_clock::time_point> granted_;
};

}  // namespace moorage::workspace
