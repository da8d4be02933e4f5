#include "workspace/birth.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "repo_cache/repo_cache.h"
#include "state_db/layers.h"
#include "workspace/repositories.h"

namespace moorage::workspace {
namespace {

using base::check;

void put(int directory, const std::string& name, const std::string& bytes, uint32_t owner) {
  const std::string temporary = name + ".new";
  const base::Fd file =
      base::open_file_at(directory, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0644);
  base::write_all(file.get(), bytes);
  check(fchown(file.get(), owner, owner), "chown " + name);
  check(fchmod(file.get(), 0644), "chmod " + name);
  check(renameat(directory, temporary.c_str(), directory, name.c_str()), "rename " + name);
}

// HEAD is the last thing that a birth writes; its name can reach the disk before its bytes do. A
// whiteout or a file as .git, or a directory that hides the one below (opaque), was made by the
// agent.
bool was_cut(const std::string& upper) {
  const std::string git = upper + "/.git";
  struct stat status;
  if (lstat(git.c_str(), &status) != 0) return errno == ENOENT;
  if (!S_ISDIR(status.st_mode)) return false;
  if (lstat((git + "/HEAD").c_str(), &status) == 0)
    return S_ISREG(status.st_mode) && status.st_size == 0;
  char mark = 0;
  return errno == ENOENT && lgetxattr(git.c_str(), "trusted.overlay.opaque", &mark, 1) < 0;
}

}  // namespace

void write_git_files(Context& context, const state_db::WorkspaceRow& row) {
  const uint32_t owner = context.options.disk_first_id + kUser;
  const base::Fd upper =
      base::open_directory(context.storage.layer_path(row.layer) + "/tree/upper");
  if (mkdirat(upper.get(), ".git", 0755) != 0 && errno != EEXIST) base::throw_errno("mkdir .git");
  const base::Fd git = base::open_file_at(upper.get(), ".git", O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  check(fchown(git.get(), owner, owner), "chown .git");
  check(fchmod(git.get(), 0755), "chmod .git");  // whatever the daemon's umask is

  const auto refs = context.repos.workspace_refs(Repositories::directory(row.repository));
  // git wants the file sorted; refs/heads sorts before refs/remotes and refs/tags.
  std::string packed = "# pack-refs with: peeled fully-peeled sorted \n";
  packed += row.base_commit + " refs/heads/" + row.branch + "\n";
  const size_t header_end =
      refs->packed_refs.starts_with('#') ? refs->packed_refs.find('\n') + 1 : 0;
  packed += refs->packed_refs.substr(header_end);
  put(git.get(), "packed-refs", packed, owner);
  // HEAD last: its presence says that the files above are whole.
  put(git.get(), "HEAD", "ref: refs/heads/" + row.branch + "\n", owner);
}

void mend_birth(Context& context, const state_db::WorkspaceRow& row) {
  if (!was_cut(context.storage.layer_path(row.layer) + "/tree/upper")) return;
  // On a parent the git files are the parent's; and what an integrity check found is not painted
  // over.
  if (state_db::Layers(context.store).get(row.layer).parent || !row.integrity.empty()) return;
  base::log(base::LogLevel::warning, "workspace.mended", {{"ws", row.id}, {"ly", row.layer}});
  context.storage.make_layer(row.layer);
  write_git_files(context, row);
}

std::string ensure_home_skeleton(const Options& options) {
  const std::string path = options.store + "/images/home";
  if (base::path_exists(path + "/.gitconfig")) return path;
  base::make_directories(path, 0755);
  const uint32_t owner = options.disk_first_id + kUser;
  const base::Fd home = base::open_directory(path);
  check(fchown(home.get(), owner, owner), "chown " + path);
  for (const char* name : {".bashrc", ".profile", ".bash_logout"}) {
    if (const auto bytes = base::read_file_if_exists(std::string("/etc/skel/") + name)) {
      put(home.get(), name, *bytes, owner);
    }
  }
  // Without an identity the first `git commit` of an agent fails; it may set its own.
  put(home.get(), ".gitconfig", "[user]\n\tname = user\n\temail = user@moorage.invalid\n", owner);
  base::sync_directory(path);
  return path;
}

}  // namespace moorage::workspace
