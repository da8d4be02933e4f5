// A copy of a workspace's .git that works here. Its configuration, hooks and attributes can name
// programs, which git would run as the caller, and an agent may have written them. So only entries
// that hold history come along, under a new configuration. The objects that it borrows by a path of
// the sandbox come as a pack.
#pragma once

#include <string>
#include <string_view>

#include "base/os/fd.h"
#include "cli/client/remote_path.h"

namespace moorage::cli {

bool is_git_name(std::string_view name);  // ".git", in any case

// By its path below .git, like "refs/heads/main".
bool keeps_git_file(std::string_view path);
bool enters_git_directory(std::string_view path);

inline constexpr std::string_view kAlternates = "objects/info/alternates";
// Whether this text of kAlternates names the objects that every sandbox has.
bool borrows_objects(std::string_view alternates);

// origin: the URL of its remote; empty: none.
std::string new_git_config(const std::string& origin);

// The objects of the workspace's repository, as a pack without a name, written in this directory.
Fd fetch_objects(RemoteFiles& files, const std::string& git_directory);
// Adds them to the .git in this directory. False: git does not take it for a repository.
bool add_objects(int pack_fd, const std::string& git_directory);

// Makes the index of HEAD, whose paths git checks. False: it cannot, for example as objects lack.
bool make_index(const std::string& git_directory);

}  // namespace moorage::cli
