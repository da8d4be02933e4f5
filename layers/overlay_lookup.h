// How overlay finds one name in a chain of upper directories: whiteouts (character device 0:0, or
// an empty file marked by an attribute), opaque directories, and redirects (a renamed directory),
// relative or from the root. Source of the rules: fs/overlayfs/namei.c (ovl_lookup) and
// Documentation/filesystems/overlayfs.rst. Only this file knows the rules; walk.h and
// merge.h walk the chain in their own ways and ask here what a node means.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>
#include <vector>

#include "base/os/fd.h"

namespace moorage::layers {

// The prefix of overlay's attributes: "trusted.overlay.", or "user.overlay." of a mount with the
// option userxattr.
enum class OverlayMarks { trusted, user };

enum class EntryKind { absent /* whited out */, file, symlink, directory, other };

// The entry of one upper under a name.
struct UpperNode {
  bool there = false;  // the upper has the name, even as a whiteout
  EntryKind kind = EntryKind::absent;
  bool executable = false;  // by its owner, which is what git stores
  bool opaque = false;
  std::string redirect;
  Fd directory;           // if it is a directory: opened, never through a link
  struct stat status {};  // of the node itself, if it is there
};

// `marked_whiteouts`: has_marked_whiteouts() of that directory.
UpperNode find_upper_node(int directory, const std::string& name, bool marked_whiteouts,
                          OverlayMarks marks = OverlayMarks::trusted);
// Whether empty files with an attribute are whiteouts in this directory (Linux 6.7).
bool has_marked_whiteouts(int directory, OverlayMarks marks = OverlayMarks::trusted);
bool is_opaque(int directory, OverlayMarks marks = OverlayMarks::trusted);
// Upper directories of layers, opened in their order.
std::vector<Fd> open_uppers(const std::vector<std::string>& paths);
std::string join_path(const std::string& directory,
                      const std::string& name);  // either may be empty

// The state that the kernel keeps in ovl_lookup_data while it searches the layers for one name.
// From the newest layer to the oldest, until stopped(): look up target() in the layer's directory,
// or use search_from_root() if from_root(), and pass the result to take().
class NameLookup {
 public:
  enum class Part {
    nothing,    // this layer adds nothing
    node,       // the result is this file, link or other non-directory
    directory,  // this directory is one of those to merge
  };

  explicit NameLookup(std::string name) : target_(std::move(name)) {}

  bool stopped() const { return stopped_; }  // nothing from older layers shows through
  bool seen() const { return seen_; }        // some layer has the name, even as a whiteout
  bool from_root() const { return target_.starts_with('/'); }
  const std::string& target() const { return target_; }
  // The path in the base, if the directory of this name shows `directory` of the base.
  std::optional<std::string> in_base(const std::optional<std::string>& directory) const;

  // A node on the way to the target; `before` and `after` are the target's text around its name.
  Part take(const UpperNode& node, const std::string& before = "", const std::string& after = "");

 private:
  std::string target_;  // a name in the same directory, or after a redirect "/from/the/root"
  bool stopped_ = false;
  bool seen_ = false;
  bool found_ = false;
};

// A target from the root, looked up part by part in one layer. Each directory on the way may itself
// be redirected; that rewrites the target for the layers below.
struct FoundFromRoot {
  NameLookup::Part part = NameLookup::Part::nothing;
  std::string path;  // of the node, in that layer
  UpperNode node;
};
FoundFromRoot search_from_root(int layer, NameLookup& lookup,
                               OverlayMarks marks = OverlayMarks::trusted);

}  // namespace moorage::layers
