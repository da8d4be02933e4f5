// The completion scripts of the shells. Each calls `moorage completion words` for its candidates.
#include "cli/commands/completion.h"

namespace moorage::cli {
namespace {

// COMP_WORDS is useless here: bash splits words at ':' and '=' and replaces only the part after the
// last one.
constexpr std::string_view kBash =
    R"(# bash completion for moorage; made by: moorage completion bash
_moorage() {
  local line=${COMP_LINE:0:COMP_POINT} words word before i IFS=$' \t\n'
  read -ra words <<<"$line"
  [[ $line == *[[:space:]] ]] && words+=("")
  mapfile -t COMPREPLY < <(moorage completion words -- "${words[@]:1}" 2>/dev/null)
  word=${words[${#words[@]} - 1]}
  before=${word%"${word##*[:=]}"}
  for i in "${!COMPREPLY[@]}"; do
    COMPREPLY[i]=${COMPREPLY[i]%%$'\t'*}
    COMPREPLY[i]=${COMPREPLY[i]#"$before"}
  done
  if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[:=] ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -o default -F _moorage moorage
)";

constexpr std::string_view kZsh = R"(#compdef moorage
# zsh completion for moorage; made by: moorage completion zsh
_moorage() {
  local line word
  local -a lines found
  lines=("${(@f)$(moorage completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  for line in $lines; do
    word=${line%%$'\t'*}
    found+=("${word//:/\\:}:${line#*$'\t'}")
  done
  if (( $#found )); then _describe -V moorage found; else _files; fi
}
if [[ $funcstack[1] == _moorage ]]; then _moorage "$@"; else compdef _moorage moorage; fi
)";

constexpr std::string_view kFish =
    R"(# fish completion for moorage; made by: moorage completion fish
function __moorage_fill
    set -l typed (commandline -ct)
    set -l before (commandline -opc)
    set -g __moorage_found (moorage completion words -- $before[2..-1] "$typed" 2>/dev/null)
    test (count $__moorage_found) -gt 0
end
complete -c moorage -n __moorage_fill -f -k -a '$__moorage_found'
)";

}  // namespace

std::string_view completion_script(std::string_view shell) {
  if (shell == "bash") return kBash;
  if (shell == "zsh") return kZsh;
  if (shell == "fish") return kFish;
  return {};
}

}  // namespace moorage::cli
