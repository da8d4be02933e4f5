// The options of one command, declared once and parsed by CLI11, which only options.cc and
// command_line.cc include. The variables bound here must outlive the parse: commands keep them in a
// struct that their action shares.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace moorage::cli {

class Context;

// Runs a command after its options are parsed; returns the exit code.
using Action = std::function<int(Context&)>;

struct OptionText {
  std::string names;  // "--repo" or "-f,--follow" or, for an argument, "NAME"
  std::string
      placeholder;  // "URL"; empty for flags; for an argument its kind, if NAME does not say it
  std::string help;
};

// A declared option or argument, for completion, help and the manual pages.
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
  // An empty value of any of these is refused.
  void value(const OptionText& text, std::string& to);
  void values(const OptionText& text, std::vector<std::string>& to);  // may be repeated
  void argument(const OptionText& text, std::string& to);             // required
  void optional_argument(const OptionText& text, std::string& to);
  void arguments(const OptionText& text, std::vector<std::string>& to);  // all remaining words
  void required_arguments(const OptionText& text, std::vector<std::string>& to);  // at least one
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
