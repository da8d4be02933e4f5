#include "cli/views/lineage.h"

#include <map>

#include "cli/output/text.h"

namespace moorage::cli {
namespace {

struct Node {
  std::string text;
  std::string parent;  // id of a snapshot; empty: the base
};

class Drawing {
 public:
  void add(const std::string& id, Node node) {
    below_[node.parent].push_back(id);
    nodes_[id] = std::move(node);
  }
  bool knows(const std::string& id) const { return nodes_.contains(id); }
  void draw(const std::string& of, const std::string& indent) {
    const auto found = below_.find(of);
    if (found == below_.end()) return;
    for (size_t n = 0; n < found->second.size(); ++n) {
      const bool last = n + 1 == found->second.size();
      const std::string& id = found->second[n];
      lines.push_back(indent + (last ? "└─ " : "├─ ") + nodes_[id].text);
      draw(id, indent + (last ? "   " : "│  "));
    }
  }
  std::vector<std::string> lines;

 private:
  std::map<std::string, Node> nodes_;
  std::map<std::string, std::vector<std::string>> below_;  // in the order of adding
};

}  // namespace

std::vector<std::string> draw_lineage(const Json& tree) {
  Drawing drawing;
  const auto workspaces = tree.items("workspaces");
  std::map<std::string, std::string> names;
  for (const Json& workspace : workspaces) names[workspace.text("id")] = workspace.text("name");
  for (const Json& snapshot : tree.items("snapshots")) {
    // The parent may be dropped, or another user's and not shown.
    std::string parent = snapshot.text("parent");
    if (!drawing.knows(parent)) parent.clear();
    const std::string name = snapshot.text("name");
    drawing.add(snapshot.text("id"), {printable(snapshot.text("id") + "  " +
                                                (name.empty() ? snapshot.text("cause") : name) +
                                                "  of " + names[snapshot.text("workspace")]),
                                      parent});
  }
  for (const Json& workspace : workspaces) {
    std::string stands_on = workspace.text("stands_on");
    if (!drawing.knows(stands_on)) stands_on.clear();
    std::string text = workspace.text("name");
    if (workspace.has("attempt")) {
      text += "  (" + workspace.text("attempt.number") + "/" + workspace.text("attempt.of") + ")";
    }
    if (workspace.text("state") != "ready") text += "  " + workspace.text("state");
    drawing.add(workspace.text("id"), {printable(text), stands_on});
  }
  if (!workspaces.empty()) {
    const Json& first = workspaces.front();
    const std::string ref = first.text("base.ref");
    drawing.lines.push_back(printable("base  " + (ref.empty() ? "" : ref + " ") +
                                      first.text("base.commit").substr(0, 7)));
  }
  drawing.draw("", "");
  return drawing.lines;
}

}  // namespace moorage::cli
