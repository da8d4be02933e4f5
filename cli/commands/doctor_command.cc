// `doctor`: one line for each finding and one for its repair. Exit code 0 means clean.
#include "cli/client/context.h"
#include "cli/commands.h"
#include "cli/output/text.h"

namespace moorage::cli {
namespace {

struct DoctorOptions {
  bool fix = false;
  bool deep = false;
};

std::string page(const Json& diagnosis, bool fix, size_t columns) {
  std::string text;
  int64_t mendable = 0;
  for (const Json& finding : diagnosis.items("findings")) {
    const bool mended = finding.flag("mended");
    text +=
        label_lines(mended ? "repaired" : finding.text("severity"), finding.text("text"), columns);
    const std::string mend = finding.text("mend");
    const std::string command = finding.text("command");
    if (!mend.empty()) text += label_lines("", (fix ? "" : "--fix: ") + mend, columns);
    if (!mended && !command.empty()) text += label_lines("", "run: " + command, columns);
    if (!mended && !mend.empty()) ++mendable;
  }
  if (text.empty()) text = label_line("clean", "database, disk, mounts, backends and git agree");
  if (diagnosis.has("storage")) text += label_lines("storage", diagnosis.text("storage"), columns);
  if (mendable > 0 && !fix) text += label_line("next", "moorage doctor --fix");
  return text;
}

int run(Context& context, const DoctorOptions& options) {
  const std::string answer =
      options.fix
          ? context.api().send("POST", "/v1/doctor", JsonObject().add("deep", options.deep).str())
          : context.api().get(options.deep ? "/v1/doctor?deep=1" : "/v1/doctor");
  const Json diagnosis = Json::parse(answer);
  if (!context.printed_json(answer))
    context.print(page(diagnosis, options.fix, context.terminal.columns));
  return diagnosis.flag("clean") ? 0 : 1;
}

}  // namespace

Action doctor_command(Options& options) {
  auto doctor = std::make_shared<DoctorOptions>();
  options.flag({"--fix", "", "Repair everything that is safe to repair"}, doctor->fix);
  options.flag({"--deep", "", "Check every git object, file and record; takes minutes"},
               doctor->deep);
  return [doctor](Context& context) { return run(context, *doctor); };
}

}  // namespace moorage::cli
