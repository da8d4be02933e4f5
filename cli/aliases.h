// Words that people type for a command because other programs use them. An alias is replaced before
// anything is parsed, so it has the options, the help and the completion of its command.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace moorage::cli {

struct Alias {
  std::string_view typed;  // as many words as `name`
  std::string_view name;   // of a command
};

std::span<const Alias> all_aliases();
std::vector<std::string_view> aliases_of(std::string_view command);

// The command line with the name of the command in place of its alias.
std::vector<std::string> without_aliases(std::vector<std::string> words);

// How to do what a command that does not exist would do, to this workspace if it is named.
std::optional<std::string> way_without(std::string_view missing_command,
                                       const std::string& workspace = {});

}  // namespace moorage::cli
