// The options of one command, told once and parsed by CLI11, which options.cc and command_line.cc
// alone include. The variables bound here must outlive the parse: commands keep them in a struct
// that their action shares.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace moorage::cli {

class Context;

// What a command does once its options are parsed; the answer is the exit code.
using Action = std::function<int(Context&)>;

struct OptionText {
  std::string names;  // "--repo" or "-f,--follow" or, for an argument, "NAME"
  std::string
      placeholder;  // "URL"; empty for flags. Of an argument: what it is, if NAME does not tell
  std::string help;
};

// What was declared, for those who describe a command: completion and the manual page.
struct ToldOption {
  OptionText text;
  bool is_argument = false;
  bool takes_value = false;
  bool repeats = false;
  bool required = false;
};

class Options {
 public:
  explicit Options(CLI::App& app) : app_(app) {}

  void flag(const OptionText& text, bool& to);
  // Of these, what is given may not be empty.
  void value(const OptionText& text, std::string& to);
  void values(const OptionText& text, std::vector<std::string>& to);  // may be given several times
  void argument(const OptionText& text, std::string& to);             // required
  void optional_argument(const OptionText& text, std::string& to);
  void arguments(const OptionText& text, std::vector<std::string>& to);           // all that follow
  void required_arguments(const OptionText& text, std::vector<std::string>& to);  // one at least
  const std::vector<ToldOption>& told() const { return told_; }

 private:
  CLI::App& app_;
  std::vector<ToldOption> told_;
};

// The options and arguments that `declare` declares, in its order; nothing is parsed.
std::vector<ToldOption> told_by(const std::function<void(Options&)>& declare);
std::vector<std::string> names_of(const ToldOption& option);  // "-f", "--follow"
// nullptr when none has that name; arguments have none.
const ToldOption* find_option(const std::vector<ToldOption>& options, const std::string& name);

}  // namespace moorage::cli
