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
  std::string names;        // "--repo" or "-f,--follow" or, for an argument, "NAME"
  std::string placeholder;  // "URL"; empty for flags and arguments
  std::string help;
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

 private:
  CLI::App& app_;
};

}  // namespace moorage::cli
