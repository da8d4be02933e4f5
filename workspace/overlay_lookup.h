// How overlay finds one name in a chain of upper directories: whiteouts (character device 0:0, or
// an empty file marked by an attribute), opaque directories, and redirects (a renamed directory),
// relative or from the root. Source of the rules: fs/overlayfs/namei.c (ovl_lookup) and
// Documentation/filesystems/overlayfs.rst. The one place that knows them; layer_walk.h and
// layer_merge.h go through the chain each in its own way and ask here what a node means.
#pragma once

#include <string>

#include "base/fd.h"

namespace moorage::workspace {

enum class NodeType { missing, whiteout, file, symlink, directory, other };

// What one upper has under a name.
struct UpperNode {
  NodeType type = NodeType::missing;
  bool executable = false;  // by its owner, as git asks
  bool opaque = false;
  std::string redirect;
  base::Fd directory;  // of a directory: opened, never through a link
};

// `marked_whiteouts`: has_marked_whiteouts() of that directory.
UpperNode look_at_node(int directory, const std::string& name, bool marked_whiteouts);
// Whether empty files with an attribute are whiteouts in it (Linux 6.7).
bool has_marked_whiteouts(int directory);

// What the kernel keeps in ovl_lookup_data while it goes down the layers for one name. From the
// newest layer to the oldest, until stopped(): look for target() in the layer's directory, or
// search_from_root() if from_root(), and take() what is there.
class NameLookup {
 public:
  enum class Part {
    nothing,    // this layer adds nothing
    node,       // it is this file, link or other thing
    directory,  // this directory is one of those that are merged
  };

  explicit NameLookup(std::string name) : target_(std::move(name)) {}

  bool stopped() const { return stopped_; }  // nothing from further down shows through
  bool seen() const { return seen_; }        // some layer has something, were it a whiteout
  bool from_root() const { return target_.starts_with('/'); }
  const std::string& target() const { return target_; }

  // A node on the way to the target; `before` and `after` are what stands around its name there.
  Part take(const UpperNode& node, const std::string& before = "", const std::string& after = "");

 private:
  std::string target_;  // a name in the same directory, or after a redirect "/from/the/root"
  bool stopped_ = false;
  bool seen_ = false;
  bool found_ = false;
};

// A target from the root, looked up part by part in one layer. Each directory on the way may itself
// be redirected: that rewrites the target for the layers below this one.
struct FoundFromRoot {
  NameLookup::Part part = NameLookup::Part::nothing;
  std::string path;  // of the node, in that layer
  UpperNode node;
};
FoundFromRoot search_from_root(int layer, NameLookup& lookup);

}  // namespace moorage::workspace
