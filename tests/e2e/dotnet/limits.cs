using System;

class Limits {
  static void Main() {
    Console.WriteLine("{\"cpus\":" + Environment.ProcessorCount + ",\"memory\":" + GC.GetGCMemoryInfo().TotalAvailableMemoryBytes + "}");
  }
}
