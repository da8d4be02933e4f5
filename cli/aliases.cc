#include "cli/aliases.h"

#include "cli/commands.h"

namespace moorage::cli {
namespace {

constexpr Alias kAliases[] = {{"list", "ls"},
                              {"delete", "rm"},
                              {"remove", "rm"},
                              {"inspect", "show"},
                              {"describe", "show"},
                              {"backup", "export"},
                              {"ws", "ls"},
                              {"log", "logs"},
                              {"snap", "snapshot"},
                              {"config get", "config show"},
                              {"config ls", "config show"},
                              {"config list", "config show"},
                              {"lease list", "lease ls"},
                              {"repo list", "repo ls"},
                              {"repo delete", "repo rm"},
                              {"repo remove", "repo rm"},
                              {"credential list", "credential ls"},
                              {"credential delete", "credential rm"},
                              {"credential remove", "credential rm"}};

constexpr std::string_view kList = "list the snapshots of a workspace: moorage snapshots NAME",
                           kDrop = "delete a snapshot: moorage drop NAME SNAPSHOT";

constexpr struct {
  std::string_view command;
  std::string_view way;
} kMissing[] = {
    {"push",
     "push from inside: moorage exec NAME -- git push; or take the changes out: "
     "moorage diff NAME | git apply"},
    {"pull",
     "take the changes out: moorage diff NAME | git apply; or fetch inside: "
     "moorage exec NAME -- git pull"},
    {"clone",
     "a copy of a workspace: moorage fork NAME NEW; of a repository: moorage create "
     "URL"},
    {"copy", "a copy of a workspace: moorage fork NAME NEW; of files: moorage cp NAME:FILE ."},
    {"snapshot ls", kList},
    {"snapshot list", kList},
    {"snapshot rm", kDrop},
    {"snapshot delete", kDrop},
    {"snapshot remove", kDrop},
    {"snapshot restore", "restore one: moorage restore NAME SNAPSHOT"}};

}  // namespace

std::span<const Alias> all_aliases() { return kAliases; }

std::vector<std::string_view> aliases_of(std::string_view command) {
  std::vector<std::string_view> typed;
  for (const Alias& alias : kAliases) {
    if (alias.name == command) typed.push_back(alias.typed);
  }
  return typed;
}

std::vector<std::string> without_aliases(std::vector<std::string> words) {
  const std::vector<size_t> places = plain_places(words);
  if (places.empty()) return words;
  const std::string first = words[places[0]];
  const std::string both = places.size() < 2 ? first : first + " " + words[places[1]];
  for (const Alias& alias : kAliases) {
    if (alias.typed != first && alias.typed != both) continue;
    const size_t space = alias.name.find(' ');
    words[places[0]] = alias.name.substr(0, space);
    if (space != std::string_view::npos) words[places[1]] = alias.name.substr(space + 1);
    break;
  }
  return words;
}

std::optional<std::string> way_without(std::string_view missing_command,
                                       const std::string& workspace) {
  constexpr std::string_view kName = "NAME";
  for (const auto& [command, way] : kMissing) {
    if (command != missing_command) continue;
    std::string text(way);
    if (workspace.empty() || workspace.find_first_of("/:.") != std::string::npos) return text;
    for (size_t at = 0; (at = text.find(kName, at)) != std::string::npos; at += workspace.size())
      text.replace(at, kName.size(), workspace);
    return text;
  }
  return std::nullopt;
}

}  // namespace moorage::cli
