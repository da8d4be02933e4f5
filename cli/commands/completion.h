// Candidates for the next word of a `moorage` command line. They come from the table of commands
// and their options; names of workspaces, commands and repositories come from the daemon, which has
// 300 ms to answer. A failure means no candidates, never an error or output. Words that a shell
// would not take literally are left out, because other users choose names, too.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moorage::cli {

class Context;

struct Candidate {
  std::string word;
  std::string help;  // one line, may be empty
};

// `words` follow the program's name; the last is the unfinished word, perhaps empty. Without
// candidates the shell offers files.
std::vector<Candidate> candidates(Context& context, const std::vector<std::string>& words);

// For "bash", "zsh", "fish"; empty for another shell.
std::string_view completion_script(std::string_view shell);

}  // namespace moorage::cli
