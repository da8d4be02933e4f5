// What could come next on a command line of `moorage`: from the table of commands, from what each
// declares, and for names of workspaces, commands and repositories from the daemon, which gets 300
// ms; whatever is wrong there means no candidates. Never an error, and nothing is printed. Words
// that a shell would not take literally are left out: names may be another user's choice.
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

// `words` follow the program's name; the last is what has been typed of the next, perhaps nothing.
// No candidates: what comes may be a file.
std::vector<Candidate> candidates(Context& context, const std::vector<std::string>& words);

// "bash", "zsh", "fish"; empty for another.
std::string_view completion_script(std::string_view shell);

}  // namespace moorage::cli
