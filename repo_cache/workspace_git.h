// The .git directory of a base tree, for use in a workspace: objects come from the mirror, mounted
// at a fixed place inside the sandbox. Written by the thread that owns the files (fsuid_threads.h).
#pragma once

#include <map>
#include <set>
#include <string>

namespace moorage::repo_cache {

struct WorkspaceGit {
  std::string commit;      // HEAD, detached
  std::string origin_url;  // empty: no remote
  std::string index;
};

// By host: beginnings of ssh URLs ("git@github.com:") that git replaces by "https://HOST/".
using Rewritten = std::map<std::string, std::set<std::string>>;
std::string git_config(const std::string& origin_url, const Rewritten& rewritten = {});

// A file for git pack-refs with one more branch ("refs/heads/agent"), in the place of those that
// git would not allow beside it: of the same name, or "refs/heads/agent/x".
std::string with_branch(const std::string& packed_refs, const std::string& ref,
                        const std::string& commit);

void write_git_directory(const std::string& tree, const WorkspaceGit& git);
// Those of a delta, in the upper directory of an overlay.
void write_head_and_index(int upper, const std::string& commit, const std::string& index);

}  // namespace moorage::repo_cache
